"""Events of a suite's run, made by hand."""

from collections.abc import Iterable

from tileyard.base.events import CaseEnded, CasePlanned, CaseStarted, Event, RunStarted
from tileyard.base.model import Case, CommandWork, Device, Limits, Outcome, Step, Trial
from tileyard.show.view import RunView

WORK = CommandWork(run=Step(argv=("true",)))


def started(
    slots: int = 2,
    cases: int = 10,
    expected_s: float = 100.0,
    retries: int = 0,
    spared: tuple[str, ...] = (),
) -> RunStarted:
    """A run of ten cases that should take a hundred seconds."""
    devices = tuple(Device(name=f"slot:{i}", kind="slot", identity="x") for i in range(slots))
    return RunStarted(
        run="r",
        at=0.0,
        title="test ops (full)",
        target="command",
        devices=devices,
        cases=cases,
        expected_s=expected_s,
        retries=retries,
        spared=spared,
    )


def planned(
    case: str, expected_s: float | None = 10.0, batch: str = "", attempt: int = 1
) -> CasePlanned:
    """A case that should take so long and may take a minute."""
    limits = Limits(run_s=60.0)
    made = Case(id=case, attempt=attempt, work=WORK, expected_s=expected_s, limits=limits)
    return CasePlanned(case=made, batch=batch)


def begun(case: str, device: str = "slot:0") -> CaseStarted:
    """A case, by its key, on a device."""
    return CaseStarted(case=case, device=device, at=0.0)


def ended(
    case: str, outcome: Outcome = Outcome.PASSED, run_s: float = 10.0, attempt: int = 1
) -> CaseEnded:
    """A case that ended; a failure has a message of two lines and a log."""
    is_well = outcome is Outcome.PASSED
    trial = Trial(
        id="r.1",
        run="r",
        case=case,
        attempt=attempt,
        batch=case,
        target="command",
        outcome=outcome,
        message="" if is_well else "it went\n\x1b[31mwrong",
        run_s=run_s,
        log="" if is_well else f"logs/r/{case}.log",
    )
    return CaseEnded(trial=trial)


def fold(*events: Event, at_s: float = 0.0) -> RunView:
    """The view after these events, all at one time."""
    return take_all(RunView(), events, at_s)


def take_all(view: RunView, events: Iterable[Event], at_s: float = 0.0) -> RunView:
    """The view after further events."""
    for event in events:
        view.take(event, at_s)
    return view


def judged_of(view: RunView) -> list[str]:
    """Cases that have left their device and have not ended."""
    return [key for key in view.started_s if key not in view.device_of]
