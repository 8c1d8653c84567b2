"""Defaults of options from the project's file: which counts, what is refused, and what ``config`` shows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tileyard
from tileyard.cli.main import main
from tileyard.store.trials import TrialStore
from tileyard.testing.stores import make_trial
from tileyard.verbs.exec import command as exec_command
from tileyard.verbs.lease import command as lease

SUITE = """
name = "two"
[[testcase]]
name = "a"
run = { argv = ["true"] }
case = [{ name = "1" }, { name = "2" }, { name = "3" }]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a suite, and the working directory in a folder of it."""
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path / "home"))
    for variable in ("TILEYARD_CONFIG", "TILEYARD_GOLDEN_THREADS", "CC"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "inner").mkdir()
    (folder / "inner" / "suite.toml").write_text(SUITE, encoding="utf-8")
    monkeypatch.chdir(folder / "inner")
    return folder


def write(folder: Path, text: str, name: str = "tileyard.toml") -> None:
    """Write the project's file."""
    (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """What a command prints as JSON."""

    def run(*arguments: str) -> Any:  # noqa: ANN401 - any document
        assert main([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command says that ends with 2."""

    def run(*arguments: str) -> str:
        assert main([*arguments]) == 2
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("", (), None),
        ("slots = 3", (), 3),
        ("slots = 3\n[plan]\nslots = 4", (), 4),
        ("slots = 3\n[test]\nslots = 4", (), 3),
        ("slots = 3\n[plan]\nslots = 4", ("--slots", "5"), 5),
        ("plan.slots = 2", (), 2),
    ],
)
def test_the_nearest_value_counts(
    project: Path,
    printed: Callable[..., Any],
    text: str,
    arguments: tuple[str, ...],
    expected: int | None,
) -> None:
    """The command line before the verb's table, and that before the top level."""
    write(project, text)
    expected = expected or tileyard.plan("suite.toml").plan.slots
    assert printed("plan", "suite.toml", *arguments)["plan"]["slots"] == expected


def test_an_environment_variable_counts_more_than_the_file(
    project: Path, printed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also more than the table of a verb: it belongs to this machine, and the file to all."""
    write(project, "golden-threads = 3\n[test]\ngolden_threads = 4\nslots = 2\n")
    found = [row["setting"] for row in printed("config")["settings"]]
    assert found == ["TILEYARD_HOME", "golden-threads", "test.golden-threads", "test.slots"]
    monkeypatch.setenv("TILEYARD_GOLDEN_THREADS", "2")
    found = [row["setting"] for row in printed("config")["settings"]]
    assert found == ["TILEYARD_HOME", "TILEYARD_GOLDEN_THREADS", "test.slots"]


def test_python_does_not_read_them(project: Path) -> None:
    """A function has the defaults of its signature."""
    plain = tileyard.plan("suite.toml").plan.slots
    write(project, f"slots = {plain + 3}\n")
    assert tileyard.plan("suite.toml").plan.slots == plain


def test_config_shows_values_and_places(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A relative path counts from the folder of the file."""
    text = (
        '[project]\nname = "x"\n[tool.tileyard]\njunit = "out/j.xml"\n[tool.tileyard.ci.matrix]\n'
        "jobs = 2\n"
    )
    write(project, text, "pyproject.toml")
    assert main(["config"]) == 0
    file = project / "pyproject.toml"
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"junit {project}/out/j.xml {file}:4" in shown
    assert f"ci.matrix.jobs 2 {file}:6" in shown
    assert shown[-1] == f"project file: {file}"


def test_without_a_file_nothing_is_shown(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file above the repository's root is not the project's, nor is a pyproject.toml without our table."""
    write(project.parent, "slots = 3\n")
    write(project, '[project]\nname = "tileyard-x"\n', "pyproject.toml")
    monkeypatch.delenv("TILEYARD_HOME")
    assert main(["config"]) == 0
    assert capsys.readouterr().out == "every setting has its default\nproject file: none\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queue-limt = '1m'", ":1: queue-limt: unknown key (there is queue-limit)"),
        ("no-check = true", ":1: no-check: unknown key (there is check = false)"),
        ("timeout = '1m'", ":1: timeout: unknown key (there is run-limit)"),
        ("zzz = 1", ":1: zzz: unknown key (`tileyard VERB --help` lists the options)"),
        ("[tset]\nslots = 1", ":1: tset: unknown key (there is [test])"),
        ("[simulator]\nslots = 1", ":1: simulator: unknown key (there is [simulators])"),
        ("[sim]\nslots = 1", ":1: sim: unknown key (there is [simulators])"),
        ("[[devices]]\nname = 'npu:0'", ":1: devices: unknown table (write [[device]])"),
        (
            "[ci.matrx]\njobs = 1",
            ":1: ci.matrx: tileyard ci has no such option (there is [ci.matrix])",
        ),
        ("[ci]\nmatrix = 1", ":2: ci.matrix: tileyard ci matrix takes a table"),
        (
            "[plan]\n\njunit = 'x'",
            ":3: plan.junit: tileyard plan has no such option (`tileyard plan --help` lists the options)",
        ),
        ("slots = 'many'", ":1: slots: must be a whole number, not 'many'"),
        ("slots = 0", ":1: slots: 0 is less than 1"),
        ("slots = true", ":1: slots: must be a whole number, not True"),
        ("[cache.gc]\nkeep-days = 'x'", ":2: cache.gc.keep-days: must be a number, not 'x'"),
        ("fail-fast = 'yes'", ":1: fail-fast: must be true or false, not 'yes'"),
        ("select = [true]", ":1: select: must be a list of texts, not [True]"),
        ("queue-limit = ['1m']", ":1: queue-limit: must be text, not ['1m']"),
        ("per = 'cases'", ":1: per: must be one of piece, case, not 'cases'"),
        ("slots = 1\n[test]\nretries = 1\n'retries' = 2", ": is not valid TOML: "),
        ("queue-limit = '1m'\nqueue_limit = '2m'", ":2: queue_limit: is given twice"),
    ],
)
def test_what_is_wrong_is_named(
    project: Path, refused: Callable[..., str], text: str, expected: str
) -> None:
    """In one line, with the file, the line, the key and the nearest name, whatever the verb."""
    write(project, text)
    for arguments in (("config",), ("plan", "suite.toml"), ("trials",)):
        said = refused(*arguments)
        assert said.count("\n") == 1
        assert f"tileyard: {project}/tileyard.toml{expected}" in said


def test_help_is_shown_whatever_the_file_says(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lists the names that are right, with the file's defaults where that is right."""
    write(project, "slots = 77")
    assert main(["plan", "--help"]) == 0
    assert "default: 77" in capsys.readouterr().out
    write(project, "slts = 77")
    assert main(["plan", "--help"]) == 0
    assert "--slots" in capsys.readouterr().out


def test_a_message_says_where_an_option_is_set(project: Path, refused: Callable[..., str]) -> None:
    """Unless it is given on the command line, too."""
    write(project, "\nselect = 'zzz'\n")
    place = f"(--select is set in {project}/tileyard.toml:2)\n"
    assert refused("plan", "suite.toml").endswith(place)
    assert "is set in" not in refused("plan", "suite.toml", "--select", "yyy")


def test_a_default_without_effect_is_passed_over(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is given beside it decides; the same option on the command line is refused."""
    write(project, "slots = 3\ncommit = 'abc'\n")
    arguments = ["test", "suite.toml", "--list", "--devices", "cpu"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "a/1\na/2\na/3\n"
    assert main([*arguments, "--slots", "2"]) == 2
    assert capsys.readouterr().err.startswith("tileyard: --slots has no effect with --devices")


def test_a_dash_in_the_file_is_what_it_is_on_the_command_line(
    project: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output or a refusal; other paths of the same option are relative to the file."""
    write(
        project,
        "[history]\npng = '-'\n[ci.matrix]\ndurations = ['-']\n[lease]\nstatus-file = '-'\n",
    )
    place = f"takes a path, and - is none (./- is) (--png is set in {project}/tileyard.toml:2)\n"
    assert refused("history", "x").endswith(place)
    assert "--durations takes a path, and - is none" in refused("ci", "matrix", "suite.toml")
    assert lease.run_lease(["--", "true"]) == 2
    assert "--status-file takes a path, and - is none" in capsys.readouterr().err
    with TrialStore.open(project.parent / "home") as store:
        store.record(make_trial("t1"))
    printed = []
    for output in ("-", "t.json"):
        write(project, f"[trials.export]\noutput = '{output}'\n")
        assert main(["trials", "export"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed == [(project / "t.json").read_text(encoding="utf-8"), ""]


def test_verbs_that_read_their_own_arguments_have_defaults(project: Path) -> None:
    """What the command line names counts more, and keys of other verbs are left to these."""
    text = "run-limit = '5s'\nqueue-limit = '6s'\nslots = 3\n[lease]\ncount = 2\ndevices = 'cpu'\n"
    write(project, f"{text}[exec]\ntally = 'none'\ncheck-sync = true\n[other]\nx = 1\n")
    held = lease.Wanted(["--queue-limit", "7s", "--", "true"], lease.find_defaults)
    assert (held.limits.run_s, held.limits.queue_s) == (5.0, 7.0)
    assert (held.count, held.devices) == (2, ["cpu"])
    script = exec_command.Wanted(["--tally", "json", "x.py"], exec_command.find_defaults)
    assert (script.tally, script.is_checked) == ("json", True)
    assert exec_command.Wanted(["x.py"], exec_command.find_defaults).tally == "none"
    assert lease.Wanted(["--help"], lease.find_defaults).is_help


def test_a_wrong_default_of_such_a_verb_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the same words."""
    write(project, "[lease]\ncont = 2\n")
    assert lease.run_lease(["--", "true"]) == 2
    expected = "tileyard.toml:2: lease.cont: tileyard lease has no such option (there is count)\n"
    assert capsys.readouterr().err.endswith(expected)


def test_devices_can_be_declared_beside(project: Path, printed: Callable[..., Any]) -> None:
    """In pyproject.toml as in tileyard.toml."""
    text = '[tool.tileyard]\nwindow = "1ms"\n[[tool.tileyard.device]]\nname = "npu:7"\nid = "x"\n'
    write(project, text, "pyproject.toml")
    assert "npu:7" in [one["name"] for one in printed("devices")["devices"]]
