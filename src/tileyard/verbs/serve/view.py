"""The pages of a server: each is a state, shown by a part of a page that also replaces itself when the state
changes.
"""

import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version

import msgspec

from tileyard.base.model import WELL, Outcome, Record, Trial
from tileyard.base.wording import count_of
from tileyard.devices.survey import DeviceState, Survey
from tileyard.pages.page import render, render_part
from tileyard.show.view import Judged, RunView
from tileyard.show.words import (
    MESSAGE_LENGTH,
    STOPS,
    clean_line,
    format_case,
    format_config,
    format_measured,
    format_seconds,
    format_time,
    why,
)
from tileyard.verbs.doctor.view import say_health, say_holder, say_share
from tileyard.verbs.serve.plan.hosts import HostState
from tileyard.verbs.serve.plan.runs import RunFold, RunLine
from tileyard.verbs.tune.view.compiled import name_end

ASSETS = ("assets/serve.css", "assets/serve.js")
MOST_ROWS = 20
"""Rows of a table of a run under way."""
Row = tuple[str, ...]


class Shown(Record):
    """A state: its ``answer`` in one sentence, and the part of the page that shows it, from the state's own
    fields. ``is_over``: nothing of it changes any more.
    """

    part: str
    answer: str
    is_over: bool = False


class HostRow(Record):
    """Another host that works for a run; ``lost``: why nothing is heard of it."""

    name: str
    run: str
    busy: str
    building: int
    ended: int
    lost: str


class RunState(Shown, kw_only=True):
    """A run under way; rows are of texts. ``total`` is 0 if it does not say how many cases it has."""

    part: str = "serve/run.html"
    run: str
    title: str
    ended: int
    total: int
    facts: tuple[Row, ...]
    running: tuple[Row, ...]
    hidden: int
    losses: tuple[Row, ...]
    messages: tuple[Row, ...]
    hosts: tuple[HostRow, ...]
    latest: tuple[Row, ...]


class RunRow(Record):
    """A run of a list."""

    run: str
    title: str
    began: str
    end: str
    trials: int


class Overview(Shown, kw_only=True):
    """What goes on, and what went on lately."""

    part: str = "serve/overview.html"
    under_way: tuple[RunState, ...]
    hosts: tuple[HostRow, ...]
    recent: tuple[RunRow, ...]


class RunList(Shown, kw_only=True):
    """Runs by name; the next page has those before ``earlier``, if there are any."""

    part: str = "serve/runs.html"
    rows: tuple[RunRow, ...]
    earlier: str


class EndedRun(Shown, kw_only=True):
    """A run that is not under way, as the store has it."""

    part: str = "serve/ended.html"
    title: str
    facts: tuple[Row, ...]
    trials: tuple[Row, ...]
    hidden: int


class DeviceRow(Record):
    """A device of this host; ``is_bad``: in quarantine."""

    name: str
    kind: str
    health: str
    is_bad: bool
    queue: str
    busy: str
    since: str
    holder: str


class HostDevices(Record, kw_only=True):
    """The devices of another host; None with a ``problem`` if it does not answer, without before it did.
    ``at`` is the time of this host's clock.
    """

    name: str
    devices: "DevicesState | None"
    problem: str
    versions: str
    at: str


class DevicesState(Shown, kw_only=True):
    """The devices of a host, with declared queues and notes, and those of other ``hosts``."""

    part: str = "serve/devices.html"
    rows: tuple[DeviceRow, ...]
    queues: tuple[Row, ...]
    notes: tuple[str, ...]
    hosts: tuple[HostDevices, ...] = ()


LINKS: tuple[tuple[str, str], ...] = (("/", "Now"), ("/runs", "Runs"), ("/devices", "Devices"))
"""The pages to which all others lead."""


def show_page(title: str, state: Shown, events: str = "") -> str:
    """The page of a state, which follows the changes at the address ``events``, if there is one."""
    data = {"events": events}
    return render(
        "serve/page.html",
        assets=ASSETS,
        is_served=True,
        title=title,
        answer=state.answer,
        state=state,
        is_live=bool(events),
        links=LINKS,
        data=data,
    )


def encode_state(state: Shown) -> bytes:
    """A state, for a page that is open."""
    text = render_part(state.part, state=state)
    return msgspec.json.encode({"answer": state.answer, "state": text, "over": state.is_over})


def show_run(fold: RunFold) -> RunState:
    """The state of a run under way, now."""
    view, now_s = fold.view, max(time.time(), fold.at_s)
    about = view.about
    total = max(about.cases, view.planned)
    running = view.running(now_s)
    left_s = view.left_s(now_s)
    left_s = view.pace_left_s(now_s) if left_s is None else left_s
    left = "" if left_s is None else f"about {format_seconds(left_s)} left"
    of = f"{view.ended} of {count_of(total, 'case')}" if total else count_of(view.ended, "case")
    parts = [f"{of} ended", f"{len(view.failures)} failed" if view.failures else ""]
    end = "" if view.reason is None else STOPS[view.reason] or "the run has ended"
    devices = f"{len(view.on_device)} of {len(about.devices)} in use" if about.devices else ""
    return RunState(
        answer="; ".join(filter(None, [", ".join(filter(None, parts)), end or left])),
        is_over=view.reason is not None,
        run=fold.run,
        title=about.title or fold.run,
        ended=min(view.ended, total),
        total=total,
        facts=(
            ("run", fold.run),
            ("target", about.target),
            ("began", say_time(about.at)),
            ("running for", format_seconds(now_s - view.begun_s)),
            ("devices", devices),
            ("building", str(len(view.building) or "")),
            ("waiting for", ", ".join(view.awaited)),
            ("known already", str(view.reused or "")),
            *_say_best(view),
        ),
        running=tuple(
            (
                format_case(one.case.id, one.case.attempt),
                one.device,
                format_seconds(max(0.0, one.ran_s)),
                _say_left(one.left_s),
            )
            for one in running[:MOST_ROWS]
        ),
        hidden=max(0, len(running) - MOST_ROWS),
        losses=tuple((word, str(count)) for word, count in view.losses.items()),
        messages=_list_messages(view),
        hosts=_list_hosts(view, fold.run),
        latest=tuple(map(_say_judged, fold.latest)),
    )


def _say_best(view: RunView) -> list[Row]:
    """The best config on each silicon, where there is one shape."""
    return [
        ("best so far", f"{format_measured(best.measurement)}  {format_config(best.config)}")
        for best in view.best.values()
        if best.measurement is not None and not best.shape
    ]


def _say_left(left_s: float | None) -> str:
    if left_s is None:
        return ""
    return f"about {format_seconds(left_s)}" if left_s >= 0 else f"{format_seconds(-left_s)} over"


def _list_messages(view: RunView) -> tuple[Row, ...]:
    found: Counter[str] = Counter()
    for (_, message), count in view.messages.items():
        found[message] += count
    return tuple((str(count), message) for message, count in found.most_common(MOST_ROWS))


def _list_hosts(view: RunView, run: str) -> tuple[HostRow, ...]:
    return tuple(
        HostRow(
            name=name,
            run=run,
            busy=f"{use.busy} of {use.devices}",
            building=use.building,
            ended=use.ended,
            lost=clean_line(view.lost[name].why) if name in view.lost else "",
        )
        for name, use in view.hosts.items()
    )


def _say_judged(judged: Judged) -> Row:
    trial = judged.trial
    end = "failed, will be tried again" if judged.verdict == "retried" else name_end(trial)
    return _name(trial), end, _say_time_of(trial), "" if trial.outcome in WELL else why(trial)


def _name(trial: Trial) -> str:
    """A trial's config with its shape; of a program its case."""
    if not trial.kernel:
        return format_case(trial.case, trial.attempt)
    shape = f"{trial.shape}: " if trial.shape else ""
    return clean_line(f"{shape}{format_config(trial.config)}") or trial.case


def _say_time_of(trial: Trial) -> str:
    if trial.measurement is not None:
        return format_measured(trial.measurement)
    return format_time(trial.run_s * 1e9) if trial.run_s else ""


def show_overview(under_way: Sequence[RunState], recent: Sequence[RunLine]) -> Overview:
    """Runs under way, the hosts that work for them, and the latest runs."""
    failing = sum(bool(state.losses) for state in under_way)
    answer = f"{count_of(len(under_way), 'run')} under way" if under_way else "No run is under way"
    return Overview(
        answer=answer + (f", {failing} with failures" if failing else ""),
        under_way=tuple(under_way),
        hosts=tuple(host for state in under_way for host in state.hosts),
        recent=tuple(map(_say_run, recent)),
    )


def show_list(lines: Sequence[RunLine], limit: int) -> RunList:
    """A page of runs, of at most ``limit``."""
    return RunList(
        answer=f"{count_of(len(lines), 'run')}, the latest first" if lines else "There is no run",
        rows=tuple(map(_say_run, lines)),
        earlier=lines[-1].run if len(lines) == limit else "",
    )


def _say_run(line: RunLine) -> RunRow:
    begun, span = line.stream.begun, line.span
    at = begun.at if begun is not None else span.first_at if span is not None else 0.0
    return RunRow(
        run=line.run,
        title=clean_line(begun.title) if begun is not None else "",
        began=say_time(at),
        end=_say_end(line),
        trials=span.trials if span is not None else 0,
    )


def _say_end(line: RunLine) -> str:
    if line.stream.is_open:
        return "under way"
    if line.stream.ended is not None:
        return STOPS[line.stream.ended.reason] or "done"
    return "" if line.stream.begun is None else "killed"


def show_ended(line: RunLine, outcomes: dict[Outcome, int], trials: Sequence[Trial]) -> EndedRun:
    """A run that is not under way: how its trials ended, and the latest of them."""
    row = _say_run(line)
    total = sum(outcomes.values())
    counts = [f"{outcomes[one]} {one}" for one in Outcome if outcomes.get(one)]
    begun, ended = line.stream.begun, line.stream.ended
    took = format_seconds(ended.at - begun.at) if begun is not None and ended is not None else ""
    answer = f"{count_of(total, 'trial')}: {', '.join(counts)}" if total else "It has no trial"
    cuts = {"killed": "killed", STOPS["interrupted"]: "interrupted"}
    cut = f"; the run was {cuts[row.end]}" if row.end in cuts else ""
    return EndedRun(
        answer=answer + cut,
        is_over=True,
        title=row.title,
        facts=(
            ("run", line.run),
            ("target", begun.target if begun is not None else ""),
            ("began", row.began),
            ("took", took),
            ("end", row.end),
        ),
        trials=tuple(
            (
                _name(one),
                name_end(one),
                _say_time_of(one),
                one.device,
                one.target,
                one.id,
                clean_line(one.message, MESSAGE_LENGTH),
            )
            for one in trials
        ),
        hidden=max(0, total - len(trials)),
    )


def show_devices(survey: Survey, hosts: Sequence[HostState] = ()) -> DevicesState:
    """The devices of a host, who holds them, and how many requests wait; and those of other ``hosts``."""
    silent = sum(one.answer is not None and bool(one.answer.problem) for one in hosts)
    states = survey.devices
    held = sum(state.holder is not None for state in states)
    sick = sum(not state.health.is_well for state in states)
    waiting = sum(state.queue for state in states)
    parts = [
        f"{held} of {count_of(len(states), 'device')} held",
        f"{count_of(waiting, 'request')} waiting" if waiting else "nobody waits",
        f"{sick} in quarantine" if sick else "",
        f"{silent} of {count_of(len(hosts), 'other host')} without an answer" if silent else "",
    ]
    return DevicesState(
        answer=", ".join(filter(None, parts)),
        rows=tuple(_say_device(state, survey.at) for state in states),
        queues=tuple(
            (
                queue.name,
                queue.kind,
                clean_line(queue.identity),
                str(queue.slots),
                str(queue.tasks or ""),
            )
            for queue in survey.queues
        ),
        notes=tuple(map(clean_line, survey.notes)),
        hosts=tuple(map(_say_host, hosts)),
    )


def _say_host(state: HostState) -> HostDevices:
    answer = state.answer
    seen = answer.answer if answer is not None else None
    return HostDevices(
        name=state.host,
        devices=show_devices(seen.survey) if seen is not None else None,
        problem=clean_line(answer.problem) if answer is not None else "",
        versions=f"Tileyard {version('tileyard')}, {seen.python}" if seen else "",
        at=time.strftime("%H:%M:%S", time.localtime(state.at)) if answer is not None else "",
    )


def _say_device(state: DeviceState, at: float) -> DeviceRow:
    since = "" if state.holder is None else format_seconds(max(0.0, at - state.holder.since))
    return DeviceRow(
        name=state.name,
        kind=state.kind,
        health=say_health(state, at).plain,
        is_bad=not state.health.is_well,
        queue=str(state.queue or ""),
        busy=say_share(state.busy_share),
        since=since,
        holder=say_holder(state),
    )


def show_message(text: str) -> Shown:
    """A page that says why there is none."""
    return Shown(part="serve/nothing.html", answer=text, is_over=True)


def say_time(at: float) -> str:
    """A time of this host's clock, to the minute; empty for none."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at > 0 else ""
