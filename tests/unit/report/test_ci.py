"""What people see of duplicates and matrices."""

import io

from rich.console import Console

from tileyard.model import Digest
from tileyard.report.ci import print_duplicates, print_matrix
from tileyard.suite.content import Touched
from tileyard.suite.jobs import Check, CiJob
from tileyard.suite.jobs_duplicates import find_duplicates
from tileyard.suite.jobs_matrix import Matrix, MatrixJob


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
        "1 changed file that no step names: README.md",
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
