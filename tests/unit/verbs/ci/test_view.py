"""What people see of duplicates and matrices."""

import io

from msgspec.structs import replace
from rich.console import Console

from tileyard.base.model import Digest
from tileyard.verbs.ci.plan.jobs import Check, CiJob, CommandJob, Matrix, MatrixJob
from tileyard.verbs.ci.plan.jobs_duplicates import Finding, Spot, find_duplicates
from tileyard.verbs.ci.view import print_duplicates, print_matrix
from tileyard.verbs.test.plan.content import Touched


def shown(jobs: list[CiJob]) -> list[str]:
    """The lines that are printed of the duplicates of jobs."""
    console = Console(file=io.StringIO(), width=120)
    print_duplicates(console, find_duplicates(jobs))
    return lines_of(console)


def lines_of(console: Console) -> list[str]:
    """What was printed, without the blanks that fill columns."""
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def job(name: str, checks: str, **options: object) -> CiJob:
    """A job with checks of 60 s that never ran, each called by a letter."""
    found = tuple(
        Check(identity=Digest(letter), name=letter, seconds=60.0, is_guess=letter == "b")
        for letter in checks
    )
    return CiJob(name=name, checks=found, **options)


def test_duplicates_are_told_by_job_and_by_check() -> None:
    """A row for each job, a line for what the same jobs share, and what it saves in all."""
    jobs = [job("sim", "abc"), job("npu", "ab"), job("wheel", "c", is_independent=True)]
    expected = [
        "job checks expected to drop saves",
        "sim 3 3 min 0 s",
        "npu 2 2 min 0 s 2 2 min 0 s nothing is left of it",
        "wheel 1 60 s independent: left alone",
        "sim and npu run the same 2 checks: if only sim does, that saves 2 min 0 s: a, b",
        "1 check of independent jobs run elsewhere too, which is left as it is",
        "2 checks run more than once on identical content (1 of them never ran: guessed);"
        " running each once saves 2 min 0 s of 6 min 0 s",
    ]
    assert shown(jobs) == expected


def test_no_duplicates_are_told_too() -> None:
    """One line says so."""
    expected = "no check is run twice on identical content"
    assert shown([job("sim", "a"), job("npu", "b")])[-1] == expected


def test_findings_in_workflows_are_told_with_their_places() -> None:
    """What is built twice and how it differs, jobs that never run together, trees of the same tests."""
    spots = tuple(
        Spot(
            job=name, where=f"/w/{name}.yml:3", command="make", seconds=60.0, conditions=conditions
        )
        for name, conditions in (("a", ("x == '1'",)), ("b", ()))
    )
    together = Finding(
        kind="build",
        what="lib",
        spots=spots,
        identity=Digest("a"),
        differences={"A": ("1", "")},
        together=("push",),
        keeper="a",
    )
    apart = replace(together, kind="tests", together=(), differences={}, keeper="", tests=("t",))
    copies = replace(
        apart, kind="copies", what="tests of the same names in t and u", differing=1, keeper="t"
    )
    found = find_duplicates([job("a", "a"), job("b", "a")])
    console = Console(file=io.StringIO(), width=120)
    print_duplicates(console, replace(found, findings=(together, apart, copies)))
    expected = [
        "built 2 times: lib; keep it in a: that saves 60 s, on push",
        "/w/a.yml:3 a: make, if x == '1'",
        "/w/b.yml:3 b: make",
        "A: 1 | -",
        "1 test run 2 times: lib; these jobs never run together, 2 min 0 s in all",
        "/w/a.yml:3 a: make, if x == '1'",
        "/w/b.yml:3 b: make",
        "tests of the same names in t and u: 1 name in both, 1 of them with other content; t has more",
        "1 thing done more than once; doing each once saves 60 s of 2 min 0 s",
    ]
    assert lines_of(console)[3:] == expected


def test_names_that_would_write_to_a_terminal_are_made_harmless() -> None:
    """Names of jobs and checks come from files."""
    expected = "\x1b"
    text = "\n".join(shown([job("s\x1b[2Jim", "\x1b"), job("npu", "\x1b")]))
    assert expected not in text


def test_a_matrix_is_told_job_by_job() -> None:
    """Shards, what they take, what no job runs and why."""
    made = Matrix(
        suite="s",
        policy="full",
        jobs=(
            MatrixJob(
                shard="1/2", cases=3, expected_s=60.0, families=("sum", "max"), arguments="x"
            ),
            MatrixJob(
                shard="2/2", cases=1, expected_s=30.0, families=tuple("abcdefghi"), arguments="x"
            ),
        ),
        cases=4,
        total_s=90.0,
        left_out=7,
        guessed=1,
        touched=Touched(cases=(), unnamed=("README.md",)),
        notes=("give times",),
        commands=(
            CommandJob(job="wheel", command="make", because="src/a.c"),
            CommandJob(job="docs", command="docs", is_touched=False),
        ),
    )
    console = Console(file=io.StringIO(), width=120)
    print_matrix(console, made)
    expected = [
        "shard cases expected families",
        "1/2 3 60 s sum, max",
        "2/2 1 30 s a, b, c, d, e, f, g, h, and 1 more",
        "4 cases in 2 jobs, 90 s of work (1 never ran: guessed)",
        "the longest job takes 60 s, the mean 45 s",
        "left out: 7 cases of which no input has changed",
        "no step names README.md: say where they belong, with `[[belongs]]` or --ignore",
        "wheel runs, because of src/a.c: make",
        "docs is left out: no input of it has changed: docs",
        "note: give times",
    ]
    assert lines_of(console) == expected


def test_a_matrix_without_jobs_says_why_all_or_none_stay() -> None:
    """There is no table without a row."""
    made = Matrix(suite="s", policy="full", jobs=(), cases=0, total_s=0.0)
    touched = Touched(cases=("a/b",), why_all="s/suite.toml declares them")
    console = Console(file=io.StringIO(), width=120)
    print_matrix(console, made)
    print_matrix(
        console, Matrix(suite="s", policy="full", jobs=(), cases=1, total_s=1.0, touched=touched)
    )
    expected = [
        "0 cases in 0 jobs, 0.0 s of work",
        "1 case in 0 jobs, 1.0 s of work",
        "all cases stay: s/suite.toml declares them",
    ]
    assert lines_of(console) == expected
