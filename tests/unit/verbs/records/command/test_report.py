"""The command that writes a page of runs."""

import os
import re
import sys
from pathlib import Path

import msgspec
import pytest
from tests.unit.api.test_dispatch import CHOICE
from tests.unit.show.run_events import ended, planned, started
from tests.unit.show.suite_results import one_of_each
from tests.unit.verbs.regress.view.test_regress import RESULT
from tests.unit.verbs.tune.view.test_figure import make_grid
from tests.unit.verbs.tune.view.test_table import TABLE

from tileyard.base.model import Record
from tileyard.cli.main import main
from tileyard.store.choices import add_choices
from tileyard.store.events import EventLog
from tileyard.store.results import keep_result
from tileyard.store.trials import TrialStore
from tileyard.testing.stores import make_trial


class Odd(Record):
    """The result of a verb of somebody else."""

    number: int


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with a run of each kind that has pages, and one of another kind."""
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path))
    study = make_grid()
    for run, result in {"o": Odd(number=1), "study": study, "t": TABLE, "diff": RESULT}.items():
        keep_result(tmp_path, run, result)
    keep_result(tmp_path, "suite", one_of_each())
    with EventLog(tmp_path, "suite") as log:
        for event in (started(), planned("row/f16"), ended("row/f16")):
            log.append(event)
    return tmp_path


def read(output: Path, *runs: str) -> str:
    """The page of these runs."""
    assert main(["report", *runs, "-o", str(output)]) == 0
    return output.read_text(encoding="utf-8")


def test_each_kind_of_run_has_a_page(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whose title is that of the run."""
    output = home / "page.html"
    titles = {
        "study": "gemm M=8",
        "t": "3 results",
        "diff": "working tree against main (1a2b3c4d5e)",
    }
    for run, title in titles.items():
        assert f"<h1>{title}</h1>" in read(output, run)
        assert capsys.readouterr().err == f"report: {output}\n"
    page = read(output, "suite")
    assert "<h1>Suite ops</h1>" in page
    assert "<dt>asked</dt><dd>test ops (full)</dd>" in page


def test_runs_without_a_page_are_passed_over(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If no run is named: the last one may be of another verb."""
    keep_result(home, "z", Odd(number=1))
    assert "<h1>3 results</h1>" in read(home / "page.html")
    for kept in (home / "results").iterdir():
        if kept.stem not in "oz":
            kept.unlink()
    capsys.readouterr()
    assert main(["report", "-o", str(home / "page.html")]) == 2
    assert f"no run that has a page is recorded in {home} (runs of" in capsys.readouterr().err


def test_a_run_is_found_by_the_beginning_of_its_name(home: Path) -> None:
    """If it has an event stream."""
    assert "<h1>Suite ops</h1>" in read(home / "page.html", "sui")


def test_what_is_written_can_be_printed_instead(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``-o -``, alone on stdout; no file of that name appears."""
    with TrialStore.open(home) as store:
        store.record(make_trial("t1"))
    add_choices(home, [CHOICE])
    for number, words in enumerate(("report suite", "trace suite", "trials export", "export")):
        file = home / f"{number}"
        assert main([*words.split(), "-o", str(file)]) == 0
        capsys.readouterr()
        assert main([*words.split(), "-o", "-"]) == 0
        assert capsys.readouterr() == (file.read_text(encoding="utf-8"), "")
    refused = (
        "export --binaries -o -",
        "trials export --as space -o -",
        "trace suite -o - --json",
    )
    assert [main(one.split()) for one in refused] == [2, 2, 2]
    assert not Path("-").exists()


def test_what_is_printed_need_not_be_read_to_its_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in ``report -o - | head -1``: nothing fails, then or at the end of the process."""
    ours, others = os.pipe()
    os.close(ours)
    with open(others, "w", encoding="utf-8") as closed:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdout", closed)
        assert main(["report", "suite", "-o", "-"]) == 0
        closed.write("x")


def test_several_runs_are_in_one_page(home: Path) -> None:
    """In their order, each with its answer, and no name twice."""
    page = read(home / "page.html", "study", "suite", "diff")
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        *("gemm M=8", "Suite ops", "working tree against main (1a2b3c4d5e)"),
    ]
    names = re.findall(r' id="([^"]*)"', page)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name the file to write with -o"),
        (
            ("o", "-o", "x.html"),
            "run o has no page (runs of tileyard tune, test and regress have one)",
        ),
        (("nowhere", "-o", "x.html"), "no run 'nowhere' is recorded in "),
        (("study", "-o", "missing/x.html"), "cannot write missing/x.html"),
    ],
)
def test_bad_input_is_one_line(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    """With exit status 2."""
    assert main(["report", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert home.exists()


def test_a_result_of_another_version_is_one_line(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the run and what does not fit."""
    keep_result(home, "old", msgspec.defstruct("StudyResult", [("number", int)])(1))
    assert main(["report", "old", "-o", str(home / "x.html")]) == 2
    assert "another version of Tileyard kept the result of old" in capsys.readouterr().err


def test_results_go_with_old_streams(home: Path) -> None:
    """With ``cache gc --keep-days`` alone, and young ones stay."""
    old, young = home / "results" / "study.zst", home / "results" / "t.zst"
    os.utime(old, (1, 1))
    (home / "objects").mkdir()
    assert main(["cache", "gc", "--max-size", "1"]) == 0
    assert old.exists()
    assert main(["cache", "gc", "--keep-days", "3"]) == 0
    assert not old.exists()
    assert young.exists()
