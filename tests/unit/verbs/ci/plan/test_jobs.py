"""Jobs as they are written: on the command line and in a file."""

from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Step
from tileyard.verbs.ci.plan.jobs import DraftJob, Wanted, add_selections, parse_selection, read_jobs


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
