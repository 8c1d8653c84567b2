"""The series of a case on a terminal, as data and as a picture, as the command line shows them."""

import json
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from tests.unit.verbs.regress.plan.recorded_runs import BASE_NS, record_runs
from tests.unit.verbs.site.histories import record_study

from tileyard.cli.main import main
from tileyard.show.figure import CHANGE, TIME
from tileyard.store.results import Kept, read_result
from tileyard.verbs.regress.plan import tuned


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with six runs; head is slower from the fourth on."""
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path))
    record_runs(tmp_path, [None, BASE_NS, 1.001 * BASE_NS, *(1.1 * BASE_NS,) * 3])
    return tmp_path


def test_the_terminal_shows_runs_and_where_they_change(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each run with its time drawn; the change stands between the runs that enclose it."""
    assert main(["history", "scale"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(
        number for number, line in enumerate(lines) if ", head, cpu on cpu:0 (a CPU)" in line
    )
    head = lines[first + 1 :]
    assert "run0" in head[0]
    assert "not timed" in head[0]
    assert head[0].endswith("  0101010101")
    assert head[1].index("●") == head[0].index("●") < head[4].index("●")
    assert "% (" in head[3]
    assert "after 0303030303, not later than 0404040404" in head[3]
    assert head[-1].strip() == "6 runs, 1 change of more than 2 %; in the order of runs"


def test_a_change_that_needs_one_more_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the number of certain ones."""
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path))
    record_runs(tmp_path, [BASE_NS, BASE_NS, 1.001 * BASE_NS, 1.1 * BASE_NS])
    assert main(["history", "scale"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    certain, possible, order = last.split("; ")
    assert certain == "  4 runs, 0 changes of more than 2 % certain"
    assert possible.startswith("1 more run like the last one would confirm +")
    assert possible.endswith(" after 0303030303, not later than 0404040404")
    assert order == "in the order of runs"


def test_a_tuned_kernel_is_a_case(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its name, or with its arguments: the winner of each run, as in a site; a config lists its trials."""
    for day in range(6):
        record_study(home, day, {16: 1.2e6, 32: 1.5e6 if day < 3 else 1.0e6})
    for case in ("gemm", "gemm/M=64"):
        assert main(["history", case]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "gemm/M=64, cpu on cpu (a CPU)"
        assert [line.split()[3] for line in lines if "  tune" in line] == ["1.2"] * 3 + ["1"] * 3
        assert "after run tune2, not later than run tune3" in lines[4]
    assert main(["history", "gemm/M=64/block=16", "--json"]) == 0
    trials = json.loads(capsys.readouterr().out)
    assert {one["config"]["block"] for one in trials} == {16}
    assert len(trials) == 12
    assert main(["history", "gemm/M=6"]) == 2


def test_without_a_suite_a_kernel_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last one: all cases are those of suites, and its history is asked for by its name."""
    record_study(home, 9, {16: 1.2e6})
    for words, hint in (
        ((), "(tileyard history gemm shows the times of that kernel)"),
        (("--class", "npu"), "class npu"),
    ):
        assert main(["history", *words]) == 2
        said = capsys.readouterr().err.strip()
        assert "no case of a suite came to its end" in said
        assert said.endswith(hint)


def test_results_are_read_of_studies_only(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of comparisons are large, and say nothing of a winner."""
    record_study(home, 0, {16: 1.2e6, 32: 1.5e6})
    read = list[str]()

    def read_and_note(where: Path, run: str) -> Kept:
        read.append(run)
        return read_result(where, run)

    monkeypatch.setattr(tuned, "read_result", read_and_note)
    assert main(["history", "scale"]) == 0
    assert read == []
    assert main(["history", "gemm"]) == 0
    assert read == ["tune0"]


@pytest.mark.slow
def test_the_picture_shows_both_sides_and_the_change(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A PNG beside the data, in colours that also people can tell apart who see fewer."""
    drawn = home / "scale.png"
    assert main(["history", "scale", "--png", str(drawn), "--json"]) == 0
    (base, head) = json.loads(capsys.readouterr().out)["series"]
    assert (base["shifts"], len(head["shifts"])) == ([], 1)
    with Image.open(drawn) as image:
        colours = {one for _, one in image.convert("RGB").getcolors(1 << 24) or []}
    for name in (CHANGE, TIME):
        assert tuple(round(255 * part) for part in to_rgb(name)) in colours


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("none",), "no run of none is recorded in"),
        (("scale", "--tail"), "--tail and --times are for all cases, and not for one"),
        (("--png", "x.png"), "--png draws a CASE"),
        (("scale", "--png", "/dev/null/x.png"), "cannot write /dev/null/x.png"),
    ],
)
@pytest.mark.usefixtures("home")
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    """And ends with 2."""
    bad_usage = 2
    assert main(["history", *words]) == bad_usage
    assert expected in capsys.readouterr().err
