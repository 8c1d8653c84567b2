"""Jobs as they are written: on the command line and in a file."""

import datetime
import json
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from tileyard.base.errors import UsageError
from tileyard.base.model import CommandWork, Step
from tileyard.verbs.ci.plan.jobs import (
    MOST_JOBS,
    DraftJob,
    Matrix,
    MatrixJob,
    MatrixRequest,
    Wanted,
    add_selections,
    decide_commands,
    make_matrix,
    parse_selection,
    read_jobs,
)
from tileyard.verbs.test.options import Wish
from tileyard.verbs.test.plan.choosing import choose
from tileyard.verbs.test.plan.content import Change
from tileyard.verbs.test.plan.pieces import parse_shard, take_shard
from tileyard.verbs.test.result.result import Belonging, Expected, Policy, Suite, SuiteCase

FILE = """
[jobs.sim]
select = ["a.toml:smoke", "b.toml@board?x"]
on = "sim"
toolchain = "v3"
setup_s = 90

[jobs.wheel]
independent = true
argv = ["python", "-m", "build"]
inputs = ["src", "*.toml"]
env = { A = "1" }
seconds = 300
"""
TODAY = datetime.date(2026, 11, 21)
EVEN = {f"t{n}/c{m}": 10.0 for n in range(4) for m in range(5)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s/a.toml", Wanted(suite="s/a.toml")),
        ("s/a.toml:smoke", Wanted(suite="s/a.toml", policy="smoke")),
        ("s/a.toml?rows", Wanted(suite="s/a.toml", select=("rows",))),
        (
            "s:smoke@npu?a/b*,c:1,@d",
            Wanted(suite="s", policy="smoke", on="npu", select=("a/b*", "c:1", "@d")),
        ),
        ("k.py@cuda:sm_90a", Wanted(suite="k.py", on="cuda:sm_90a")),
        ("k.py:quick@cuda:sm_90a", Wanted(suite="k.py", policy="quick", on="cuda:sm_90a")),
    ],
)
def test_a_selection_names_suite_policy_place_and_cases(text: str, expected: Wanted) -> None:
    """Each part has a sign of its own, and none of them is needed."""
    assert parse_selection(text) == expected


def test_a_path_that_is_there_is_a_suite_whatever_its_name(tmp_path: Path) -> None:
    """A folder may have any of the signs in its name."""
    folder = tmp_path / "a:b@c?d"
    folder.mkdir()
    expected = Wanted(suite=str(folder))
    assert parse_selection(str(folder)) == expected
    expected = Wanted(suite=str(folder), policy="smoke", on="npu", select=("x?",))
    assert parse_selection(f"{folder}:smoke@npu?x?") == expected


@pytest.mark.parametrize("text", ["a.toml?", "a.toml?,", "a.toml@", "a.toml:", ":smoke", "?rows"])
def test_a_selection_that_leaves_something_out_is_refused(text: str) -> None:
    """A sign with nothing behind it is a mistake."""
    with pytest.raises(UsageError, match=r"names no suite|is named behind"):
        parse_selection(text)


def write(folder: Path, text: str) -> Path:
    """A jobs file beside two suites."""
    (folder / "src").mkdir(exist_ok=True)
    for name in ("a.toml", "b.toml"):
        (folder / name).touch()
    path = folder / "ci-jobs.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_jobs_file_is_read_from_its_own_folder(tmp_path: Path) -> None:
    """Suites and inputs lie below it; what is said for a job holds for all its selections."""
    path = write(tmp_path, FILE)
    suites = [str(tmp_path / name) for name in ("a.toml", "b.toml")]
    expected = {
        "sim": DraftJob(
            name="sim",
            where=f"{path}:2",
            wanted=(
                Wanted(suite=suites[0], policy="smoke", on="sim", toolchain="v3"),
                Wanted(suite=suites[1], on="board", toolchain="v3", select=("x",)),
            ),
            setup_s=90,
            on="sim v3",
        ),
        "wheel": DraftJob(
            name="wheel",
            where=f"{path}:8",
            is_independent=True,
            command=Step(
                argv=("python", "-m", "build"),
                inputs=(str(tmp_path / "src"), str(tmp_path / "*.toml")),
                env={"A": "1"},
                cwd=str(tmp_path),
            ),
            seconds=300,
        ),
    }
    assert read_jobs(path) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ":1: has no job"),
        ("[jobs.a]\n", ":1: jobs.a: runs nothing"),
        ("[jobs.a]\nselct = []\n", ":2: jobs.a.selct: unknown key .did you mean 'select'"),
        ("[jobs.a]\nselect = 'a.toml'\n", ":2: jobs.a.select: must be a list"),
        (
            "[jobs.a]\nselect = ['a.toml',\n'c.toml']\n",
            r":3: jobs.a.select\[1\]: there is no suite",
        ),
        ("[jobs.a]\nselect = ['a.toml?']\n", r":2: jobs.a.select\[0\]: .* no case is named"),
        ("[jobs.a]\nargv = ['make']\n", ":1: jobs.a: names no `inputs`"),
        ("[jobs.a]\nargv = []\n", ":2: jobs.a.argv: must be"),
        (
            "[jobs.a]\nargv = ['make']\ninputs = ['src', 'lib']\n",
            r":3: jobs.a.inputs\[1\]: .*/lib matches no file",
        ),
        (
            "[jobs.a]\nselect = ['a.toml']\nseconds = 3\n",
            ":3: jobs.a.seconds: belongs to a command",
        ),
        ("[jobs.a]\ndose = 'x'\n", ":2: jobs.a.dose: unknown key .did you mean 'does'"),
        ("[jobs.a]\ndoes = 3\n", ":2: jobs.a.does: must be"),
        ("[jobs.a]\nsetup_s = -1\n", ":2: jobs.a.setup_s: must be"),
        ("jobs = 3\n", ":1: jobs: must be"),
        ("[jobs]\na = 3\n", ":2: jobs.a: is not a table but 3"),
        ("[jobs.a\n", ": is not valid TOML"),
    ],
)
def test_a_bad_jobs_file_is_refused_by_line_and_key(
    tmp_path: Path, text: str, expected: str
) -> None:
    """What cannot be meant is said where it stands."""
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=expected) as caught:
        read_jobs(path)
    assert str(caught.value).startswith(str(path))


def test_an_unreadable_jobs_file_is_refused(tmp_path: Path) -> None:
    """A file that is not there has no jobs."""
    with pytest.raises(UsageError, match="No such file"):
        read_jobs(tmp_path / "none.toml")


def test_the_command_line_adds_to_the_file(tmp_path: Path) -> None:
    """A job of the file gets a further selection, another one is new, and any can be left alone."""
    jobs = read_jobs(write(tmp_path, FILE))
    found = add_selections(jobs, ("sim=c.toml", "new=d.toml:full", "new=e.toml"), ("sim",))
    expected = ["a.toml", "b.toml", "c.toml"]
    assert [Path(wanted.suite).name for wanted in found["sim"].wanted] == expected
    assert found["sim"].is_independent
    assert [wanted.suite for wanted in found["new"].wanted] == ["d.toml", "e.toml"]
    assert not jobs["sim"].is_independent


@pytest.mark.parametrize(
    ("given", "independent", "expected"),
    [
        (("sim",), (), "'sim' is not of the form JOB=SELECTION"),
        (("=a.toml",), (), "is not of the form"),
        (("sim=a.toml",), ("wheel",), "--independent wheel: there is no such job"),
        ((), (), "no job is named"),
    ],
)
def test_bad_jobs_on_the_command_line_are_refused(
    given: tuple[str, ...], independent: tuple[str, ...], expected: str
) -> None:
    """One line says which of them."""
    with pytest.raises(UsageError, match=expected):
        add_selections({}, given, independent)


def make_suite(times_s: Mapping[str, float], **policies: Policy) -> Suite:
    """A suite of these cases, each of which depends on ``/r/s/CASE.bin`` alone."""
    cases = []
    for case in times_s:
        testcase, _, name = case.partition("/")
        step = Step(argv=("true",), inputs=(f"/r/s/{case}.bin",))
        work = CommandWork(run=Step(argv=("true",)), golden=step)
        where = "/r/s/suite.toml:1"
        dtype = "int32" if name.startswith("i") else "float32"
        cases.append(
            SuiteCase(
                testcase=testcase,
                name=name,
                work=work,
                dtype=dtype,
                family=testcase[0],
                where=where,
            )
        )
    return Suite(
        name="s",
        path="/r/s/suite.toml",
        folder="/r/s",
        cases=tuple(cases),
        policies=policies,
        belongs=(Belonging(files=("/r/README.md",), cases=()),),
    )


def expect(times_s: Mapping[str, float]) -> dict[str, Expected]:
    """What these cases are expected to take."""
    return {
        case: Expected(case=case, testcase=case.partition("/")[0], seconds=time, samples=1)
        for case, time in times_s.items()
    }


def cut(
    times_s: Mapping[str, float],
    policies: Mapping[str, Policy] | None = None,
    changed: str = "",
    **asked: object,
) -> Matrix:
    """The matrix of a suite of these cases."""
    request = {"wish": Wish(), "durations": "times.json", **asked}
    if changed:
        request["change"] = Change(root=Path("/r"), files=tuple(changed.split()))
    return make_matrix(
        make_suite(times_s, **(policies or {})), MatrixRequest(**request), expect(times_s)
    )


def run_by(job: MatrixJob, times_s: Mapping[str, float]) -> list[str]:
    """The cases that ``tileyard test`` chooses for the arguments of a job."""
    words = shlex.split(job.arguments)
    options: dict[str, list[str]] = {}
    for name, value in zip(words[::2], words[1::2], strict=True):
        options.setdefault(name, []).append(value)
    wish = Wish(policy=options["--policy"][0], select=tuple(options.get("--select", ())))
    expected = expect(times_s)
    chosen = choose(make_suite(times_s), wish, TODAY, times_s).cases
    taken = take_shard([expected[case.id] for case in chosen], parse_shard(options["--shard"][0]))
    return [one.case for one in taken]


def test_each_case_is_run_by_one_job() -> None:
    """The arguments of all jobs together choose all cases, each once, in equal parts."""
    found = cut(EVEN, jobs=4)
    expected = sorted(EVEN)
    assert sorted(case for job in found.jobs for case in run_by(job, EVEN)) == expected
    assert [job.cases for job in found.jobs] == [5, 5, 5, 5]
    assert [job.expected_s for job in found.jobs] == [50.0] * 4
    assert [job.shard for job in found.jobs] == ["1/4", "2/4", "3/4", "4/4"]


def test_jobs_skip_and_set_what_the_matrix_does() -> None:
    """They would cut other shards, or run other cases, if they did not; a change keeps to that, too."""
    suite = replace(make_suite(EVEN), parameters={"mode": "npu"})
    for change in (None, Change(root=Path("/r"), files=("s/t1/c1.bin", "s/t2/c0.bin"))):
        request = MatrixRequest(wish=Wish(skip=("t0", "t2/c0")), jobs=1, change=change)
        (job,) = make_matrix(suite, request, expect(EVEN)).jobs
        assert "--skip t0 --skip t2/c0 --set mode=npu" in job.arguments
        assert job.cases == (14 if change is None else 1)


def test_a_shard_without_a_case_is_no_job() -> None:
    """One case that is longer than several shards leaves some of them empty, which would not be green."""
    times_s = {"a/long": 100.0, "b/short": 1.0}
    found = cut(times_s, jobs=5)
    expected = sorted(times_s)
    assert len(found.jobs) < 5
    assert sorted(case for job in found.jobs for case in run_by(job, times_s)) == expected


@pytest.mark.parametrize(
    ("max_s", "asked", "expected"),
    [
        (200.0, {}, 1),
        (50.0, {}, 4),
        (100.0, {"slots": 2}, 1),
        (50.0, {"slots": 2}, 2),
        (60.0, {"setup_s": 10.0}, 4),
    ],
)
def test_there_are_as_many_jobs_as_it_takes(
    max_s: float, asked: dict[str, object], expected: int
) -> None:
    """No job takes longer than asked for, with its slots, its set-up and its processes' start-up."""
    found = cut(EVEN, max_s=max_s, **asked)
    assert max(job.expected_s for job in found.jobs) <= max_s
    assert len(found.jobs) == expected
    assert found.notes == ()


def test_what_processes_need_to_start_counts() -> None:
    """Each job starts one process at least."""
    found = cut(EVEN, jobs=4, startup_s=10.0)
    expected = 60.0
    assert min(job.expected_s for job in found.jobs) >= expected


def test_a_case_that_is_too_long_is_told_of() -> None:
    """The other jobs are as long as that case, which nothing can make shorter."""
    found = cut({**EVEN, "long/c": 100.0}, max_s=30.0)
    expected = "no job can end within 30 s: the longest case alone needs 100 s"
    assert found.notes == (expected,)
    assert max(job.expected_s for job in found.jobs) <= 110.0


def test_a_matrix_has_an_end() -> None:
    """More jobs than GitHub runs are refused where asked for, and told of where they would be needed."""
    many = {f"t{n}/c": 10.0 for n in range(MOST_JOBS + 100)}
    with pytest.raises(UsageError, match="257 jobs are too many: a matrix has at most 256"):
        cut(EVEN, jobs=MOST_JOBS + 1)
    found = cut(many, max_s=10.0)
    expected = "256 jobs are the most there can be"
    assert found.notes[0].startswith(expected)
    assert len(found.jobs) <= MOST_JOBS


def test_only_what_a_change_touches_is_run() -> None:
    """The others are counted, and jobs are asked for whole testcases where all of them are touched."""
    files = "s/t1/c0.bin s/t1/c1.bin s/t1/c2.bin s/t1/c3.bin s/t1/c4.bin s/t3/c2.bin"
    found = cut(EVEN, changed=files, jobs=2)
    expected = ["t1/c0", "t1/c1", "t1/c2", "t1/c3", "t1/c4", "t3/c2"]
    assert sorted(case for job in found.jobs for case in run_by(job, EVEN)) == expected
    assert (found.cases, found.left_out) == (6, 14)
    assert "--select t1 --select t3/c2" in found.jobs[0].arguments
    assert found.filters == {"t": sorted(f"s/{case}.bin" for case in EVEN)}


def test_a_change_that_touches_nothing_gives_no_jobs() -> None:
    """Nothing to run is not a mistake here, and it is counted."""
    found = cut(EVEN, changed="README.md", jobs=2)
    expected = '{"include":[]}'
    assert found.github == expected
    assert (found.jobs, found.cases, found.left_out) == ((), 0, 20)


def test_a_change_narrows_a_smoke_run() -> None:
    """What stands for its family and is touched runs; nothing else takes the place of what is not."""
    times_s = {"a/f1": 5.0, "a/f2": 1.0, "a/i1": 1.0, "b/f1": 1.0, "b/i1": 1.0, "b/i2": 3.0}
    for case in times_s:
        found = cut(times_s, changed=f"s/{case}.bin", jobs=1, wish=Wish(policy="smoke"))
        expected = [case] if case in ("a/f2", "a/i1", "b/f1", "b/i1") else []
        assert [one for job in found.jobs for one in run_by(job, times_s)] == expected


def test_texts_that_would_mean_more_are_not_used() -> None:
    """A testcase that is called like a family of others is asked for case by case."""
    times_s = {"a/c1": 1.0, "a/c2": 1.0, "ab/c1": 1.0}
    found = cut(times_s, changed="s/a/c1.bin s/a/c2.bin", jobs=1)
    expected = ["a/c1", "a/c2"]
    assert run_by(found.jobs[0], times_s) == expected


def test_a_policys_budget_holds_for_each_job() -> None:
    """No job is expected to take longer than its policy lets it."""
    policies = {"quick": Policy(name="quick", budget_s=20.0)}
    found = cut(EVEN, policies, jobs=2, wish=Wish(policy="quick"), setup_s=5.0)
    expected = [25.0, 25.0]
    assert [job.expected_s for job in found.jobs] == expected


def test_the_matrix_is_one_line_for_github() -> None:
    """An object with an entry for each job, whose arguments a shell takes as they are."""
    times_s = {"a$(x)/c'1": 1.0, "b/c": 1.0}
    found = cut(times_s, changed="s/a$(x)/c'1.bin", jobs=1, durations="my times.json")
    row = {
        "shard": "1/1",
        "cases": 1,
        "expected_s": 1.0,
        "families": "a",
        "arguments": "--policy full --shard 1/1 --durations 'my times.json' --select 'a$(x)'",
    }
    expected = {"include": [row]}
    assert "\n" not in found.github
    assert json.loads(found.github) == expected


def test_jobs_that_share_no_times_are_warned() -> None:
    """All that they share is the suite, so its number of cases decides."""
    expected = "without --durations jobs are cut by the number of cases, not by time"
    assert cut(EVEN, jobs=2, durations="").notes == (expected,)


def test_a_policy_that_chooses_nothing_is_refused() -> None:
    """That is a mistake, unlike a change that touches nothing."""
    policies = {"none": Policy(name="none", cases=("zzz/*",))}
    with pytest.raises(UsageError, match="nothing to run"):
        cut(EVEN, policies, jobs=2, wish=Wish(policy="none"))


def test_commands_of_jobs_are_decided_by_their_inputs() -> None:
    """A changed input, the jobs file itself, and what all depends on; without a change all run."""
    step = Step(argv=("make", "x y"), inputs=("/r/src", "/r/*.toml"), cwd="/r")
    drafts = [
        DraftJob(name="wheel", where="", command=step),
        DraftJob(
            name="docs", where="", command=Step(argv=("docs",), inputs=("/r/docs",), cwd="/r")
        ),
        DraftJob(name="suite", where=""),
    ]

    def decide(*files: str, **options: tuple[str, ...]) -> list[tuple[str, bool, str]]:
        change = Change(root=Path("/r"), files=files, **options)
        found = decide_commands(drafts, change, Path("/r/ci/jobs.toml"))
        return [(one.job, one.is_touched, one.because) for one in found]

    expected = [("wheel", True, "src/a.c"), ("docs", False, "")]
    assert decide("README", "src/a.c") == expected
    assert decide("pyproject.toml", ignore=("*.toml",)) == [
        ("wheel", False, ""),
        ("docs", False, ""),
    ]
    both = [("wheel", True, "ci/jobs.toml"), ("docs", True, "ci/jobs.toml")]
    assert decide("ci/jobs.toml") == both
    assert [touched for _, touched, _ in decide("cmake/a", always=("cmake",))] == [True, True]
    assert [one.is_touched for one in decide_commands(drafts, None, Path("/r/x"))] == [True, True]
    assert decide_commands(drafts, None, Path("/r/x"))[0].command == "make 'x y'"
