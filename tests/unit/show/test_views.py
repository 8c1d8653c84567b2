"""What people see of a run, from events and results made by hand."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tileyard.api.study import Study
from tileyard.artifacts.manifest import Build
from tileyard.base.errors import NoWinnerError
from tileyard.base.events import (
    BuildEnded,
    BuildStarted,
    CaseEnded,
    CasePlanned,
    CaseStarted,
    DeviceAsked,
    DeviceAwaited,
    DeviceLeased,
    DeviceReleased,
    Event,
    Note,
    PairsCounted,
    RunEnded,
    RunStarted,
    StudyAdvanced,
)
from tileyard.base.model import (
    Case,
    Device,
    Draw,
    KernelWork,
    Keys,
    Measurement,
    Mismatch,
    Outcome,
    Trial,
)
from tileyard.base.settings import Settings
from tileyard.show.progress import Progress
from tileyard.show.view import Judged, RunView
from tileyard.show.words import format_rate, format_seconds, format_time
from tileyard.verbs.tune.result import CompileResult, Control, Final, KeptOut, StudyResult, Tradeoff
from tileyard.verbs.tune.view.progress import StudyLayout
from tileyard.verbs.tune.view.study import print_study, render_study
from tileyard.verbs.tune.view.trials import Trials

DEVICE = Device(name="cpu:0", kind="cpu", identity="x", cores=(0, 1))


def trial(number: int, outcome: Outcome, median_ns: float = 0.0) -> Trial:
    """A trial of config ``tile=number``."""
    measurement = None
    if median_ns:
        measurement = Measurement(
            median_ns=median_ns,
            low_ns=median_ns * 0.99,
            high_ns=median_ns * 1.01,
            confidence=0.95,
            samples_ns=(median_ns,),
        )
    return Trial(
        id=f"r.{number}",
        run="r",
        case=f"c{number}",
        batch=f"c{number}",
        kernel="gemm",
        arguments={"M": 8},
        config={"tile": number},
        target="cpu",
        outcome=outcome,
        measurement=measurement,
        message="" if median_ns else "why it failed",
    )


def events() -> list[Event]:
    """A run of two cases: one passes, one does not."""
    cases = [Case(id=f"c{i}", work=KernelWork(kernel="gemm", config={"tile": i})) for i in (1, 2)]
    started = RunStarted(
        run="r", at=0.0, title="tune gemm", target="cpu", devices=(DEVICE,), cases=2, flops=1e9
    )
    return [
        started,
        *(CasePlanned(case=case) for case in cases),
        BuildStarted(case="c1", at=1.0),
        BuildEnded(case="c1", at=2.0, ok=True, reused=False),
        CaseStarted(case="c1", device="cpu:0", at=2.0),
        CaseEnded(trial=trial(1, Outcome.PASSED, 2e6)),
        BuildStarted(case="c2", at=2.0),
        BuildEnded(case="c2", at=3.0, ok=False, reused=False),
        CaseEnded(trial=trial(2, Outcome.COMPILE_ERROR)),
        Note(text="a note"),
        RunEnded(run="r", at=4.0, reason="done"),
    ]


def result() -> StudyResult:
    """Three configs: the best, a tie, and a wrong one."""
    trials = (
        trial(1, Outcome.PASSED, 2e6),
        trial(2, Outcome.PASSED, 2.01e6),
        trial(3, Outcome.MISMATCH),
    )
    finals = tuple(
        Final(trial=t.id, config=dict(t.config), ratio=r, low=r - 0.01, high=r + 0.01, tied=True)
        for t, r in zip(trials[:2], (1.0, 1.002), strict=True)
    )
    return StudyResult(
        run="r",
        kernel="gemm",
        arguments={"M": 8},
        target="cpu",
        device="cpu:0",
        flops=1e9,
        space=3,
        trials=trials,
        best=trials[0],
        finals=finals,
        control=Control(ratio=1.001, low=0.99, high=1.01, false_alarm=False),
    )


def test_each_silicon_is_shown_with_its_winner_and_what_was_kept_out() -> None:
    """One after the other, and why a device's times do not count."""
    odd = KeptOut(device="gpu:1", base="gpu:0", ratio=1.08, low=1.07, high=1.09)
    wrong = KeptOut(device="gpu:2", base="gpu:0", message="mismatch: far off")
    red = msgspec.structs.replace(result(), silicon="red, 300 W", kept_out=(odd, wrong))
    draws = (Draw(seed=1), Draw(edges="inf"))
    blue = msgspec.structs.replace(
        result(), silicon="blue, 400 W", best=result().trials[1], draws=draws
    )
    file = io.StringIO()
    both = msgspec.structs.replace(red, others=(blue,))
    print_study(Console(file=file, width=200), both, Path("home"))
    said = file.getvalue()
    assert "gemm M=8 on red, 300 W" in said
    assert "also right on seed 1, edge values (inf)\n" in said
    assert "gpu:1 takes 1.080 x as long as gpu:0 [1.070, 1.090] for the same kernel: " in said
    assert "gpu:2: the kernel that devices are compared by ended as mismatch: far off: " in said
    assert [line for line in said.splitlines() if line.startswith("best: ")] == [
        "best: tile=1 on red",
        "best: tile=2 on blue",
    ]


def test_a_pareto_set_is_a_table_of_its_own() -> None:
    """The fastest first, each with both measures."""
    found = result()
    members = tuple(
        Tradeoff(trial=one.id, config=one.config, measurement=one.measurement, amount=amount)
        for one, amount in zip(found.trials, (65536.0, 512.0), strict=False)
        if one.measurement is not None
    )
    file = io.StringIO()
    found = msgspec.structs.replace(found, second="scratch_bytes", pareto=members)
    print_study(Console(file=file, width=200), found, Path("home"))
    lines = file.getvalue().splitlines()
    begin = lines.index("Pareto set of latency and scratch_bytes")
    assert [line.split() for line in lines[begin + 1 : begin + 4]] == [
        ["tile", "latency", "±", "95", "%", "scratch_bytes"],
        ["1", "2", "ms", *lines[begin + 2].split()[3:5], "64", "KiB"],
        ["2", "2.01", "ms", *lines[begin + 3].split()[3:5], "512", "B"],
    ]


def test_without_a_terminal_there_are_plain_lines() -> None:
    """Each ended case is one line, without control characters."""
    file = io.StringIO()
    with Progress(Console(file=file, width=200), StudyLayout()) as progress:
        for event in events():
            progress(event)
    lines = file.getvalue().splitlines()
    expected = "passed        tile=1  2 ms  500.0 GFLOP/s"
    assert expected in lines
    assert any(line.startswith("compile_error") and "why it failed" in line for line in lines)
    assert "\x1b" not in file.getvalue()


def ended(number: int, wrong: int, outcome: Outcome = Outcome.MISMATCH) -> Trial:
    """A trial that ended wrong, or in another way for which every config has the same reason."""
    mismatch = Mismatch(
        output="C", index=(number, 0), got=f"{number}.5", want="-2", wrong=wrong, total=1000
    )
    message = mismatch.describe() if outcome is Outcome.MISMATCH else "stopped before it began"
    return msgspec.structs.replace(
        trial(number, outcome),
        message=message,
        mismatch=mismatch if outcome is Outcome.MISMATCH else None,
    )


def test_what_ends_alike_has_one_line() -> None:
    """Wrong results of one kind, refusals that differ in numbers, configs not reached; on a terminal, too."""
    refused = [
        msgspec.structs.replace(trial(n, Outcome.COMPILE_ERROR), message=f"needs {n} KiB")
        for n in range(4)
    ]
    wrong = [ended(10 + n, 990 + n) for n in range(4)]
    other = ended(30, 5)
    left = [ended(40 + n, 0, Outcome.NOT_RUN) for n in range(36)]
    for is_terminal in (False, True):
        file = io.StringIO()
        console = Console(file=file, width=200, force_terminal=is_terminal, color_system=None)
        with Progress(console, StudyLayout()) as progress:
            for one in (*refused, *wrong, other, *left):
                progress(CaseEnded(trial=one))
        lines = [line for line in file.getvalue().splitlines() if "tile=" in line]
        assert [line.split("  ")[-1] for line in lines] == [
            "needs 0 KiB",
            "C[10, 0] is 10.5, expected -2; 990 of 1000 elements are wrong (99 %)",
            "C[30, 0] is 30.5, expected -2; 5 of 1000 elements are wrong (0.5 %)",
            "stopped before it began",
        ]


def test_a_reference_is_doubted_where_all_configs_are_wrong_alike() -> None:
    """Neither where one passed, nor where they are wrong differently; those never run say nothing."""
    question = "all 3 configs differ in the same way from the reference: is the reference right?"
    alike = (*(ended(n, 960 + n) for n in range(3)), ended(8, 0, Outcome.NOT_RUN))
    for trials, is_asked in (
        (alike, True),
        (alike[:1], False),
        ((*alike, ended(9, 100)), False),
        ((*alike, trial(9, Outcome.UNCHECKED, 2e6)), False),
    ):
        lost = msgspec.structs.replace(result(), trials=trials, best=None, finals=(), control=None)
        said = shown(lost)
        assert (question in said) is is_asked
        assert any("is the reference right" in line for line in said) is is_asked
        reason = (
            "mismatch  tile=0 and 2 more: C[0, 0] is 0.5, expected -2; 960 of 1000 elements are "
            "wrong (96 %)"
        )
        assert (reason in said) is (len(trials) > 1)
    study = Study(
        msgspec.structs.replace(lost, trials=alike),
        Settings(home=Path(), lock_dir=Path(), cores=(0,)),
    )
    with pytest.raises(NoWinnerError) as raised:
        study.best  # noqa: B018 - it raises
    assert raised.value.hint == question


def test_ties_have_one_line() -> None:
    """Of many, the first are named."""
    (best, *_) = result().finals
    ties = [
        msgspec.structs.replace(
            best,
            trial=f"t{n}",
            config={"tile": n},
            ratio=1 + n / 1000,
            low=0.99,
            high=1.02,
            tied=True,
        )
        for n in range(5)
    ]
    said = shown(msgspec.structs.replace(result(), finals=(best, *ties)))
    (line,) = [line for line in said if "tied" in line]
    assert line.startswith(
        "finals: 5 configs are tied with it: tile=0, 1.000 x its time [0.990, 1.020]; tile=1, "
    )
    assert line.endswith("; ...")


def test_a_device_that_is_waited_for_is_named_with_its_holder() -> None:
    """Once, however often its place in the queue changes; and again when it is waited for anew."""
    file = io.StringIO()
    awaited = DeviceAwaited(device="cpu:0", at=1.0, place=2, holder="ada, pid 7")
    with Progress(Console(file=file, width=200), StudyLayout()) as progress:
        progress(DeviceAsked(device="cpu:0", at=0.9))
        progress(awaited)
        progress(awaited)
        progress(DeviceLeased(device="cpu:0", at=2.0, lease=3))
        progress(awaited)
        progress(DeviceReleased(device="cpu:0", at=3.0))
    expected = ["waiting for cpu:0, held by ada, pid 7"] * 2
    assert file.getvalue().splitlines() == expected


def test_on_a_terminal_there_are_two_lanes() -> None:
    """The live view has a lane for building and one for running."""
    file = io.StringIO()
    console = Console(file=file, width=120, force_terminal=True, color_system=None)
    with Progress(console, StudyLayout()) as progress:
        for event in events():
            progress(event)
        progress._shown_s = 0.0
        progress(Note(text="drawn"))
    expected = ("building", "running", "best 2 ms")
    assert all(word in file.getvalue() for word in expected)


def test_the_table_names_winner_ties_and_failures() -> None:
    """The best config comes first, a tie is named, the control reports itself."""
    file = io.StringIO()

    print_study(Console(file=file, width=200), result(), Path("/home/x"))
    text = file.getvalue()
    expected = ("best: tile=1", "is tied with it: ", "no false alarm", "2 passed, 1 mismatch")
    assert all(words in text for words in expected)
    assert 'tileyard.load("r.1")' in text


def test_a_study_on_a_narrow_screen_keeps_its_values() -> None:
    """Parameters with one value are named below the table, whose columns are as wide as their values."""
    more = {"num_stages": 3, "threads_per_block": 128, "block_swizzle": 8}
    wide = [msgspec.structs.replace(one, config={**one.config, **more}) for one in result().trials]
    file = io.StringIO()
    narrow = msgspec.structs.replace(result(), trials=tuple(wide))
    print_study(Console(file=file, width=60), narrow, Path("/home/x"))
    text = file.getvalue()
    below = "the same in all rows: num_stages=3; threads_per_block=128; block_swizzle=8"
    assert below in text.splitlines()
    assert "…" not in text
    assert "┃ tile ┃ latency ┃ ± 95 % ┃ GFLOP/s ┃ outcome" in text


def shown(changed: StudyResult) -> list[str]:
    """The lines that people see of a result."""
    file = io.StringIO()
    print_study(Console(file=file, width=200), changed, Path("/home/x"))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_the_last_line_names_the_winner_and_where_it_won() -> None:
    """The silicon and not its number."""
    changed = msgspec.structs.replace(result(), silicon="EPYC (25/17/1), 2 cores")
    expected = "best: tile=1 on EPYC (25/17/1)"
    assert shown(changed)[-1] == expected


def test_the_last_line_says_that_nothing_was_checked() -> None:
    """A config without a reference is no success without a word."""
    trials = (trial(1, Outcome.UNCHECKED, 2e6),)
    changed = msgspec.structs.replace(result(), trials=trials, best=trials[0])
    expected = "best: tile=1 on cpu:0, unchecked: no reference"
    assert shown(changed)[-1] == expected
    none = msgspec.structs.replace(changed, best=None, require_check=True)
    assert shown(none)[-1] == ("no config passed: unchecked: no reference, and a check is required")


def test_a_study_that_ends_before_its_checks_says_so() -> None:
    """As after Ctrl-C: configs passed, but none had the checks that come after the screening."""
    trials = (trial(1, Outcome.PASSED, 2e6), trial(2, Outcome.MISMATCH))
    none = msgspec.structs.replace(
        result(), trials=trials, best=None, finals=(), control=None, reason="interrupted"
    )
    said = "no best config: of 1 config that passed none had all further checks"
    assert shown(none)[-1] == said


def test_configs_that_all_fail_alike_are_one_line() -> None:
    """With neither a table, which would have no time in it, nor the reason once for each config."""
    trials = tuple(trial(number, Outcome.COMPILE_ERROR) for number in (1, 2, 3))
    failed = [msgspec.structs.replace(one, message="k.py:3: no such operation") for one in trials]
    none = msgspec.structs.replace(
        result(), trials=tuple(failed), best=None, finals=(), control=None
    )
    lines = shown(none)
    assert lines[-2:] == [
        "compile_error  tile=1 and 2 more: k.py:3: no such operation",
        "no config passed",
    ]
    assert not any("latency" in line for line in lines)


def test_the_last_line_says_what_infrastructure_has_lost() -> None:
    """A best config out of those that are left is no success without a word, nor one that is not recorded."""
    trials = (*result().trials[:2], trial(3, Outcome.INFRA_ERROR))
    changed = msgspec.structs.replace(result(), trials=trials)
    expected = "best: tile=1 on cpu:0, the best of 2 configs: infrastructure lost 1"
    assert shown(changed)[-1] == expected
    assert "1 config lost to devices, queues or the host: run again to try them" in shown(changed)
    changed = msgspec.structs.replace(result(), unrecorded=("r.1", "r.2"))
    assert "2 trials could not be recorded: r.1 to r.2" in shown(changed)
    assert not any("tileyard.load" in line for line in shown(changed))


def test_a_study_that_lost_something_is_no_success() -> None:
    """3 for what infrastructure did; 1 where nothing passed and it did not do all of that."""
    lost, wrong = trial(3, Outcome.INFRA_ERROR), trial(4, Outcome.MISMATCH)
    changes: list[tuple[dict[str, object], int]] = [
        ({}, 0),
        ({"trials": (*result().trials, lost)}, 3),
        ({"unrecorded": ("r.1",)}, 3),
        ({"are_finals_lost": True}, 3),
        ({"trials": (lost,), "best": None}, 3),
        ({"trials": (lost, wrong), "best": None}, 1),
        ({"trials": (), "best": None}, 1),
    ]
    for change, expected in changes:
        assert msgspec.structs.replace(result(), **change).exit_status == expected, change


def test_a_finalist_is_shown_with_the_times_that_decided() -> None:
    """One that the screening gave up early is not called clearly slower when it has won."""
    before = result()
    times = before.trials[1].measurement
    assert times is not None
    given_up = msgspec.structs.replace(times, median_ns=9e6, abandoned=True)
    best = msgspec.structs.replace(before.trials[0], measurement=given_up)
    finals = (msgspec.structs.replace(before.finals[0], measurement=times), before.finals[1])
    other = msgspec.structs.replace(trial(4, Outcome.PASSED, 8e6), measurement=given_up)
    changed = msgspec.structs.replace(
        before, trials=(best, *before.trials[1:], other), best=best, finals=finals
    )
    lines = shown(changed)
    first = next(line for line in lines if line.startswith("│ 1"))
    assert "2.01 ms" in first
    assert "*" not in first
    expected = ["9 ms*"]
    assert [line.split("│")[3].strip() for line in lines if "*" in line and "│" in line] == expected


def test_a_disturbed_study_names_no_order() -> None:
    """The configs have the screening's times, failures are as in any study, and the last line says why."""
    why = "the finals took at least 9.8 x as long as the screening of the same configs"
    before = msgspec.structs.replace(result(), best=None, finals=(), control=None)
    disturbed = msgspec.structs.replace(before, disturbances=(why, why), disturbed=True)
    wrong = [trial(number, Outcome.MISMATCH) for number in (6, 7)]
    trials = (*wrong, trial(5, Outcome.PASSED, 9e6), *disturbed.trials)
    disturbed = msgspec.structs.replace(disturbed, trials=trials)
    lines = shown(disturbed)
    rows = [[cell.strip() for cell in line.split("│")] for line in lines if line.startswith("│")]
    assert [row[1] for row in rows] == ["5", "1", "2", "6", "7", "3"]
    assert any("times of the screening, in no order" in line for line in lines)
    (resolved,) = (line for line in lines if line.startswith(why))
    assert resolved == f"{why}: other work disturbed one of them, and it was measured again"
    assert lines[-2] == "mismatch  tile=6 and 2 more: why it failed"
    assert lines[-1].startswith(f"disturbed, no order is named: {why}. ")
    assert disturbed.exit_status == 3
    busy = "other work disturbed the screening"
    lines = shown(msgspec.structs.replace(result(), disturbances=(why,), busy=(busy,)))
    assert busy in lines
    assert any(line.startswith(why) for line in lines)
    assert lines[-1].startswith("best: ")
    with pytest.raises(NoWinnerError, match=r"^the study of gemm was disturbed: the finals took"):
        _ = Study(
            disturbed, Settings(home=Path("/nowhere"), lock_dir=Path("/nowhere"), cores=())
        ).best


def test_a_wide_interval_is_shown_and_decides_nothing() -> None:
    """Each side of it; its config is not called clearly slower, in the table or when it ends."""
    wide = Measurement(
        median_ns=3766e3,
        low_ns=103e3,
        high_ns=3889e3,
        confidence=0.95,
        samples_ns=(103e3, 3766e3, 3889e3),
        abandoned=True,
    )
    other = msgspec.structs.replace(trial(4, Outcome.PASSED, 1.0), measurement=wide)
    lines = shown(msgspec.structs.replace(result(), trials=(*result().trials, other)))
    row = next(line for line in lines if "3.766 ms" in line)
    assert "3.766 ms?" in row
    assert "-97.3 +3.3 %" in row
    assert any("? may be as fast as the best" in line for line in lines)
    assert " 3.766 ms [103 us, 3.889 ms]\n" in repr(Trials((other, other)))
    ended = StudyLayout().end(RunView(), Judged(verdict="passed", trial=other), is_live=False)
    expected = "3.766 ms [103 us, 3.889 ms]"
    assert str(ended).endswith(expected)


def test_a_wide_control_resolves_no_ties() -> None:
    """It says so beside the control and the winner, and where it is known from an earlier run, that too."""
    wide = Control(ratio=0.941, low=0.668, high=1.415, false_alarm=False)
    lines = shown(msgspec.structs.replace(result(), control=wide))
    expected = "the machine was too busy to separate tied configs"
    assert lines[-1].endswith(expected)
    assert any("A/A control 0.941" in line and line.endswith(expected) for line in lines)
    known = msgspec.structs.replace(wide, reused=True)
    again = shown(msgspec.structs.replace(result(), control=known))
    assert any(line.endswith("(in an earlier run; --fresh measures again)") for line in again)


def test_configs_with_one_binary_are_one_row() -> None:
    """With all their values, and named with the winner."""
    keys = Keys(binary="same")
    trials = tuple(
        msgspec.structs.replace(trial(i, Outcome.PASSED, 2e6), keys=keys) for i in (128, 64)
    )
    lines = shown(
        msgspec.structs.replace(
            result(), trials=trials, best=trials[0], finals=(), control=None, silicon="EPYC"
        )
    )
    expected = "best: tile=128 (the same binary: tile=64) on EPYC"
    assert lines[-1] == expected
    assert [line.split("│")[2].strip() for line in lines if line.startswith("│")] == ["64|128"]


def built(tile: int, outcome: Outcome, exceeds: str = "") -> Build:
    """How config ``tile=number`` could be built for another target."""
    return Build(
        case=f"tile={tile}",
        config={"tile": tile},
        outcome=outcome,
        message="" if outcome is Outcome.PASSED else "k.py:7: no",
        exceeds=exceeds,
    )


def also_built(*configs: Build) -> CompileResult:
    """What another target came to."""
    return CompileResult(
        run="b", kernel="gemm", arguments={}, target="cuda:sm_90a", space=3, configs=configs
    )


def test_what_another_target_makes_of_configs_is_a_column() -> None:
    """Whether each builds and fits; each reason once; how many do; and the best one's fate."""
    other = also_built(
        built(1, Outcome.COMPILE_ERROR, "registers"),
        built(2, Outcome.COMPILE_ERROR),
        built(3, Outcome.PASSED),
        built(4, Outcome.COMPILE_ERROR),
        built(5, Outcome.NOT_RUN),
        built(6, Outcome.COMPILE_ERROR, "threads"),
    )
    lines = shown(msgspec.structs.replace(result(), also_built=(other,)))
    cells = [line.split("│")[-2].strip() for line in lines if line.startswith("│")]
    expected = {
        "cuda:sm_90a: compile_error  tile=2 and 1 more: k.py:7: no",
        "cuda:sm_90a: too large  tile=1 and 1 more: k.py:7: no",
        "1 of 6 configs build for cuda:sm_90a; 1 too large (registers), 1 too large (threads); 1 not tried",
    }
    assert cells == ["too large", "compile_error", "builds"]
    assert expected <= set(lines)
    assert lines[-1] == "best: tile=1 on cpu:0, too large for cuda:sm_90a"


def test_configs_with_one_binary_may_differ_on_another_target() -> None:
    """Their row says how many of them build there."""
    keys = Keys(binary="same")
    trials = tuple(
        msgspec.structs.replace(trial(i, Outcome.PASSED, 2e6), keys=keys) for i in (1, 2)
    )
    other = also_built(built(1, Outcome.PASSED), built(2, Outcome.TIMEOUT))
    changed = msgspec.structs.replace(
        result(), trials=trials, best=trials[0], finals=(), control=None, also_built=(other,)
    )
    assert any(line.endswith("│ 1 of 2 build │") for line in shown(changed))


def test_the_second_run_of_a_command_is_counted_by_itself() -> None:
    """Builds for another target are not among the configs that are measured."""
    file = io.StringIO()
    console = Console(file=file, width=120, force_terminal=True, color_system=None)
    with Progress(console, StudyLayout()) as progress:
        for event in (*events(), events()[0]):
            progress(event)
        progress._shown_s = 0.0
        progress(Note(text="drawn"))
    assert "2/2" not in file.getvalue().rpartition("drawn")[2]


def test_notebooks_get_html() -> None:
    """The same table as HTML."""

    expected = "<pre"
    assert render_study(result(), Path("/home/x")).startswith(expected)


def test_figures_have_units() -> None:
    """Times, rates and durations are put into words with the unit that suits."""
    expected = ("950 ns", "12.5 us", "3.142 ms", "2 s")
    assert tuple(map(format_time, (950.0, 12500.0, 3.1416e6, 2e9))) == expected
    assert format_rate(2e9, 1e7) == "200.0"
    assert format_rate(0.0, 1e7) == ""
    assert format_seconds(200.0) == "3 min 20 s"


def test_finals_are_counted_by_themselves() -> None:
    """View and result have equally many configs; without a device nothing is shown as running."""
    started, *planned = events()[:3]
    first, second = (
        msgspec.structs.replace(trial(i, Outcome.PASSED, 2e6), reused=True) for i in (1, 2)
    )
    final = CasePlanned(case=Case(id="f01", work=KernelWork(kernel="gemm")), batch="finals-1")
    ended = msgspec.structs.replace(first, case="f01", batch="finals-1")
    view, layout = RunView(), StudyLayout()
    file = io.StringIO()
    for event in (
        msgspec.structs.replace(started, devices=()),
        *planned,
        *(CaseEnded(trial=one) for one in (first, second)),
        final,
        CaseEnded(trial=ended),
    ):
        view.take(event, 1.0)
    Console(file=file, width=120).print(layout.draw(view, 2.0, Console().options))
    assert "2 known already   1 of 1 finals and checks" in file.getvalue()
    assert "2/2" in file.getvalue()
    assert "running" not in file.getvalue()


def test_a_study_shows_what_it_expects_and_what_was_lost() -> None:
    """The gain, the time left as the study says it, and failed and rejected configs by reason; in 80 columns
    no fact is broken.
    """
    view, layout = RunView(), StudyLayout()
    view.take(RunStarted(title="tune gemm", run="r", cases=100), 0.0)
    for number, outcome in enumerate(
        (Outcome.PASSED, Outcome.MISMATCH, Outcome.MISMATCH, *3 * (Outcome.COMPILE_ERROR,)), start=1
    ):
        ended = trial(number, outcome, 2e6)
        if number > 4:
            ended = msgspec.structs.replace(
                ended, exceeds="registers", message="needs many", measurement=None
            )
        view.take(CaseEnded(trial=ended), 8.0)
        if number == 5:
            assert isinstance(view.changed, Judged)
            line = layout.end(view, view.changed, is_live=True)
            assert line is not None
            assert line.plain.split() == ["too", "large", "tile=5", "needs", "many"]
    assert "gain" not in layout.state(view, 10.0).plain
    view.take(StudyAdvanced(expected_gain=0.031, left_s=42.0, rejected={"`where`": 40}), 10.0)
    facts = (
        "12 s, about 40 s left",
        "expected gain 3.1 %",
        "40 rejected by `where`, 2 wrong, 2 too large (registers), 1 not built",
        "best 2 ms  tile=1",
    )
    assert layout.state(view, 12.0).plain == "   ".join(facts)
    file = io.StringIO()
    console = Console(file=file, width=80)
    console.print(layout.draw(view, 12.0, console.options))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert lines[-3:] == ["   ".join(facts[:2]), *facts[2:]]
    assert max(map(len, lines)) <= 80


def test_a_title_counts_the_cores_of_each_device() -> None:
    """One core, or several; what owns none has its name alone."""
    devices = [
        Device(name=name, kind="cpu", identity="x", cores=cores)
        for name, cores in {"cpu:0": (0,), "cpu:1": (1, 2), "npu:0": ()}.items()
    ]
    view = RunView()
    view.take(RunStarted(title="tune gemm", run="r", devices=tuple(devices)), 0.0)
    title = StudyLayout().title(view).plain
    assert "  device cpu:0 (1 core), cpu:1 (2 cores), npu:0  " in title


def test_a_comparison_says_how_far_it_is() -> None:
    """With a guess at the time left as soon as there is one."""
    view = RunView()
    view.take(RunStarted(title="regress a b", run="r"), 0.0)
    layout = StudyLayout(tells_ends=False)
    assert "decided" not in layout.state(view, 1.0).plain
    view.take(PairsCounted(decided=0, undecided=5, left_s=None), 1.0)
    assert layout.state(view, 1.0).plain.endswith("0 decided, 5 undecided")
    view.take(PairsCounted(decided=2, undecided=3, left_s=40.0), 2.0)
    assert layout.state(view, 2.0).plain.endswith("2 decided, 3 undecided, about 40 s left")


@pytest.mark.parametrize(
    ("budget_s", "expected"), [(None, "4.0 s"), (60.0, "4.0 s"), (15.0, "1.0 s"), (9.0, "0.0 s")]
)
def test_a_study_says_how_long_it_may_still_take(budget_s: float | None, expected: str) -> None:
    """At the pace of the last configs that ran, within the budget; known ones took no time."""
    view, layout = RunView(), StudyLayout()
    view.take(RunStarted(title="tune gemm", run="r", cases=6, budget_left_s=budget_s), 0.0)
    for number, at_s in enumerate((10.0, 12.0, 14.0), start=1):
        assert "left" not in layout.state(view, at_s).plain or number == 3
        view.take(CaseEnded(trial=trial(number, Outcome.PASSED, 2e6)), at_s)
    view.take(
        CaseEnded(trial=msgspec.structs.replace(trial(4, Outcome.PASSED, 2e6), reused=True)), 14.0
    )
    assert layout.state(view, 14.0).plain.startswith(f"14 s, about {expected} left   1 known")
    for number in (5, 6):
        view.take(CaseEnded(trial=trial(number, Outcome.PASSED, 2e6)), 18.0)
    assert "left" not in layout.state(view, 18.0).plain
