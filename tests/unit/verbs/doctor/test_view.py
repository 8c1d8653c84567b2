"""What people see of devices and of a diagnosis, from records made by hand."""

import io

from rich.console import Console

from tileyard.devices.foreign import QueueState
from tileyard.devices.health import GoodProbe, Health, Probe, ProbeReport, Verdict
from tileyard.devices.occupancy import Holder
from tileyard.devices.survey import DeviceState, Survey
from tileyard.show.words import clean_line
from tileyard.verbs.doctor.plan.findings import Diagnosis, Finding, Level
from tileyard.verbs.doctor.view import print_findings, print_probe, print_survey

HOSTILE = "sleep [/red] \x1b[2J\nnow"


def state(name: str, health: Health, holder: Holder | None, busy: float | None) -> DeviceState:
    """A device for which one request waits."""
    return DeviceState(
        name=name,
        kind="npu",
        identity="x",
        health=health,
        holder=holder,
        queue=1,
        busy_share=busy,
        held_idle_share=None if busy is None else 1 - busy,
    )


def shown(survey: Survey) -> str:
    """The table as text."""
    file = io.StringIO()
    print_survey(Console(file=file, width=200), survey)
    return file.getvalue()


def test_a_table_of_devices() -> None:
    """Holder, time, queue and shares are in the row of their device; what is not known is a ?."""
    holder = Holder(device="npu:0", user="ann", pid=7, command="train", since=90.0, number=3)
    survey = Survey(
        at=100.0,
        lock_dir="/locks",
        window_s=0.5,
        devices=(
            state("npu:0", Health(), holder, 0.25),
            state(
                "npu:1",
                Health(reason="smoke", device="npu:1.0", user="bob", since=40.0),
                None,
                None,
            ),
        ),
        notes=("GPUs are not listed: x",),
    )
    lines = [line.split() for line in shown(survey).splitlines()]
    expected = ["npu:0", "npu", "well", "10", "s", "1", "25", "%", "75", "%", "ann", "7:", "train"]
    assert lines[1] == expected
    assert " ".join(lines[2]) == "npu:1 npu quarantine: smoke (npu:1.0, by bob, 60 s ago) 1 ?"
    assert " ".join(lines[3]) == "GPUs are not listed: x"


def test_queues_stand_below_the_devices() -> None:
    """What submits is named, and said to be missing where it is."""
    queues = tuple(
        QueueState(
            name=f"queue:{name}",
            kind="npu",
            identity="910B3",
            slots=4,
            tool="task-submit",
            is_tool_found=found,
            tasks=tasks,
        )
        for name, found, tasks in (("lab", True, 2), ("far", False, 0))
    )
    survey = Survey(at=1.0, lock_dir="/locks", window_s=0.5, devices=(), queues=queues)
    lines = [" ".join(line.split()) for line in shown(survey).splitlines()]
    expected = [
        "queue class devices client slots tasks here",
        "queue:lab npu 910B3 task-submit 4 2",
        "queue:far npu 910B3 task-submit: is not on this machine 4",
    ]
    assert lines[-3:] == expected


def test_what_others_wrote_cannot_steer_a_terminal() -> None:
    """Commands and reasons of other users are shown on one line, without markup or escapes."""
    holder = Holder(device=HOSTILE, user="eve", pid=7, command=HOSTILE, since=0.0, number=3)
    sick = Health(reason=HOSTILE, user="eve", since=0.0)
    survey = Survey(
        at=1.0,
        lock_dir="/locks",
        window_s=0.5,
        devices=(state("npu:0", sick, holder, None),),
    )
    expected = "sleep [/red] \\x1b[2J now"
    text = shown(survey)
    assert text.count(expected) == 3
    assert "\x1b" not in text
    assert clean_line("a" * 9, 4) == "aaa…"


def test_a_probe_in_quarantine_is_counted() -> None:
    """The line says how many good ones there are."""
    file = io.StringIO()
    probe = Probe(device="npu:0", verdict=Verdict.GOOD, message="42 [C]", at=1.0, seconds=0.1)
    health = Health(reason="smoke", user="bob", probes=(GoodProbe(at=1.0, seconds=0.1),))
    print_probe(Console(file=file, width=100), ProbeReport(probe=probe, health=health))
    expected = [
        "npu:0: good in 0.1 s: 42 [C]",
        "npu:0 is in quarantine: smoke (1 of 3 good probes)",
    ]
    assert file.getvalue().splitlines() == expected


def test_findings_are_aligned_with_what_to_do() -> None:
    """A finding that is well is one line; another says what to do in a second one."""
    file = io.StringIO()
    findings = (
        Finding(subject="python", level=Level.OK, message="3.11"),
        Finding(subject="GPUs", level=Level.FAIL, message="lost", todo="reboot"),
    )
    print_findings(Console(file=file, width=100), Diagnosis(at=0.0, findings=findings))
    expected = ["ok    python  3.11", "fail  GPUs    lost", "              -> reboot"]
    assert file.getvalue().splitlines() == expected
