"""``tileyard strategies`` and ``tileyard tune --replay`` on the command line, in this process."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.unit.verbs.tune.plan.recorded.recorded_spaces import make_valley

from tileyard.base.events import RepetitionStarted, RunStarted
from tileyard.cli.main import main
from tileyard.show.view import RunView
from tileyard.verbs.strategies.plan import compare, list_strategies
from tileyard.verbs.tune.plan.recorded.files import write_space
from tileyard.verbs.tune.plan.strategies.base import STRATEGIES
from tileyard.verbs.tune.result import Replay, Score
from tileyard.verbs.tune.view.progress import ReplayLayout

COMPARE = ["strategies", "compare", "valley.jsonl"]
REPLAY = ["tune", "--replay", "valley.jsonl"]
REPLAYED = """\
valley: 400 configs, of which failed: 57 compile_error; the best takes 1 us
strategy grid, repeated 3 times, with no device
 trials  regret              95 %
     25  11.2 %  [11.2 %, 11.2 %]
score of autotuning-methodology: -9.426 [-9.426, -9.426]
the score takes about 38 trials: its later moments repeat what was found
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a recorded space."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    write_space(make_valley(), tmp_path / "valley.jsonl")
    return tmp_path


def test_a_replay_is_shown(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Regret by trials, the score, and why it is not the whole one; nothing is recorded."""
    asked = ["tune", "--replay", "valley.jsonl", "--strategy", "grid", "--repetitions", "3"]
    assert main([*asked, "--trials", "30"]) == 0
    assert capsys.readouterr() == (REPLAYED, "")
    assert not (folder / "home").exists()


def test_a_replay_without_a_score_says_why(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """Once for all strategies of a table."""
    valley = make_valley()
    timed = tuple(one for one in valley.configs if one.is_timed)
    write_space(replace(valley, configs=timed[:3]), folder / "few.jsonl")
    why = "random search is expected to find the best of 3 configs with a time within the 2 trials"
    assert main(["tune", "--replay", "few.jsonl", "--repetitions", "1"]) == 0
    assert f"no score: {why} that the score takes\n" in capsys.readouterr().out
    chosen = ["--strategy", "random", "--strategy", "grid", "--repetitions", "1"]
    assert main(["strategies", "compare", "few.jsonl", *chosen]) == 0
    assert f"no score of random, grid: {why}" in capsys.readouterr().out
    assert main([*REPLAY, "--trials", "1", "--repetitions", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2].startswith("no score: the trials end at ")
    assert said[-1] == "the score takes about 38 trials"


def test_what_was_left_is_shown_where_a_gain_ends_a_search(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Beside what was expected then."""
    bounds = ["--strategy", "bayes", "--repetitions", "1", "--trials", "30"]
    assert main([*REPLAY, *bounds, "--until-gain", "20%"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = (number for number, line in enumerate(lines) if "expected gain" in line)
    assert lines[head].split("  ")[-1].strip() == "90 % below"
    assert lines[head + 1].split()[0] == "bayes"
    assert main([*COMPARE, "--repetitions", "1", "--until-gain", "50%"]) == 0
    assert {"auto", "bayes"} <= {*capsys.readouterr().out.split()}


def test_a_replay_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    """With the numbers that the table has."""
    asked = ["tune", "--replay", "valley.jsonl", "--repetitions", "2", "--in-flight", "4", "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["trials"] for one in found["regrets"]] == [25, 50, 100, 200]
    assert (found["strategy"], found["in_flight"], found["is_short"]) == ("auto", 4, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "k.py", "--replay", "valley.jsonl"], "no kernel is named beside it"),
        (["tune", "--replay", "valley.jsonl", "--no-check"], "--no-check has no effect with --rep"),
        (["tune", "--replay", "valley.jsonl", "--devices", "cpu:0"], "--devices has no effect"),
        (["tune", "--replay", "valley.jsonl", "--strategy", "x"], "there is no strategy 'x'"),
        (["tune", "--replay", "none.jsonl"], "cannot read"),
        (
            [*REPLAY, "--until-gain", "0%"],
            "--until-gain: '0%' is not a share above 0 and below 100 %",
        ),
        ([*REPLAY, "--until-gain", "-1%"], "--until-gain: '-1%' is not a share"),
        ([*REPLAY, "--until-gain", "200%"], "--until-gain: '200%' is not a share"),
        (
            [*REPLAY, "--until-gain", "1%", "--strategy", "random"],
            "the strategy random does not know what gain to expect (these do: auto, bayes, model)",
        ),
        ([*REPLAY, "--device-budget", "0s"], "the budget is spent before a trial"),
        (
            [*COMPARE, "--until-gain", "1%", "--strategy", "local"],
            "the strategy local does",
        ),
        (["tune", "k.py", "--in-flight", "4"], "--in-flight has no effect without --replay"),
        (["strategies", "compare", "valley.jsonl", "none.jsonl"], "cannot read none.jsonl"),
        (["strategies", "compare", "valley.jsonl", "--strategy", "x"], "there is no strategy 'x'"),
        (["strategies", "compare"], "Missing argument"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit status 2, before anything is replayed."""
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_strategies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with a line, and the default marked."""
    assert main(["strategies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(STRATEGIES)
    assert sum("(default)" in line for line in lines) == 1
    assert all(one.description.endswith(".") for one in list_strategies())


class Terminal(io.StringIO):
    """A terminal, and all that was written to it."""

    def isatty(self) -> bool:
        """That it is one."""
        return True


@pytest.mark.parametrize(
    ("command", "last"),
    [
        ([*REPLAY, "--strategy", "grid", "--repetitions", "3"], "2/3 repetitions"),
        (
            [*COMPARE, "--strategy", "random", "--strategy", "grid", "--repetitions", "2"],
            "3/4 repetitions",
        ),
    ],
)
def test_a_terminal_shows_how_far_replays_are(
    command: list[str],
    last: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Repetitions, the time left, strategy and space, on stderr alone; the document is whole."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main([*command, "--json"]) == 0
    json.loads(capsys.readouterr().out)
    said = terminal.getvalue()
    assert f"0/{last[2:]}" in said
    *_, line = (line for line in said.splitlines() if last in line)
    assert " left   grid on valley.jsonl" in line


def test_a_narrow_terminal_shows_the_file_on_a_second_line() -> None:
    """After the strategy, and whole."""
    name = "convolution_of_a_large_picture_RTX.jsonl.gz"
    view = RunView()
    view.take(RunStarted(title="replay", run="replay", cases=5), 0.0)
    view.take(RepetitionStarted(strategy="model", file=name, left={"model": 5}), 0.0)
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as shown:
        console.print(ReplayLayout().draw(view, 2.0, console.options))
    first, second = shown.get().splitlines()
    assert first.rstrip().endswith("0/5 repetitions   2.0 s")
    assert second.strip() == f"model on {name}"


def test_strategies_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """By space and over all, and as JSON; a file that is named twice, by any path, counts once."""
    files = [str(Path("valley.jsonl").absolute()), "valley.jsonl"]
    chosen = ["--strategy", "random", "--strategy", "grid", "--repetitions", "3"]
    assert main(["strategies", "compare", *files, *chosen]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "valley, 400 configs (valley.jsonl)"
    assert [line.split()[0] for line in lines[2:4]] == ["random", "grid"]
    (row,) = (line for line in lines[5:] if line.startswith(" random"))
    assert row.endswith("1 of 1")
    assert main(["strategies", "compare", *files, *chosen, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["strategy"] for one in found["standings"]] == ["random", "grid"]
    assert [one["strategy"] for one in found["replays"]] == ["random", "grid"]


def test_wins_are_counted_by_score() -> None:
    """Equal scores are both the best; a strategy without any score is the last."""

    def end(strategy: str, file: str, score: float | None) -> Replay:
        return Replay(
            file=file,
            space=file,
            strategy=strategy,
            configs=9,
            best_ns=1.0,
            repetitions=1,
            in_flight=1,
            trials=9,
            regrets=(),
            score=None if score is None else Score(score=score, low=score, high=score),
            needed=9,
            is_short=False,
        )

    ends = [end("a", "x", 0.5), end("b", "x", 0.5), end("a", "y", 0.25), end("b", "y", 0.75)]
    found = compare([*ends, end("c", "x", None), end("c", "y", None)]).standings
    assert [(one.strategy, one.score, one.wins, one.spaces) for one in found] == [
        ("b", 0.625, 2, 2),
        ("a", 0.375, 1, 2),
        ("c", None, 0, 2),
    ]
