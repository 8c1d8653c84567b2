"""Describes a host: a table of its devices, one line per probe, and the problems found."""

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileyard.devices.health import GOOD_PROBES_NEEDED, ProbeReport, Verdict
from tileyard.devices.lease_log import LeaseEnd, LeaseLog, LeaseRules, LoggedLease
from tileyard.devices.survey import DeviceState, Survey
from tileyard.show.console import new_table, print_table
from tileyard.show.words import clean_line, format_seconds, spell_duration
from tileyard.verbs.doctor.plan.findings import Diagnosis, Level

if TYPE_CHECKING:  # with asyncio, which this host's own devices need not wait for
    from tileyard.engine.hosts.naming import HostAnswer

LEVEL_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}
VERDICT_STYLES = {
    Verdict.GOOD: "green",
    Verdict.FAILED: "red",
    Verdict.BUSY: "yellow",
    Verdict.UNKNOWN: "yellow",
}


def print_survey(console: Console, survey: Survey) -> None:
    """One row a device, and under it whatever else there is to say."""
    columns = ("device", "class", "health", "since", "queue", "busy", "held idle", "holder")
    table = new_table(columns, ("device", "class", "health", "holder"))
    for state in survey.devices:
        since = ""
        if state.holder is not None:
            since = format_seconds(max(0.0, survey.at - state.holder.since))
        table.add_row(
            Text(state.name),
            Text(state.kind),
            say_health(state, survey.at),
            since,
            str(state.queue or ""),
            say_share(state.busy_share),
            say_share(state.held_idle_share) if state.holder is not None else "",
            Text(say_holder(state)),
        )
    print_table(console, table, cut="holder")
    if survey.queues:
        console.print()
        print_table(console, _list_queues(survey))
    if limits := _describe_rules(survey.rules):
        console.print(f"root's limits: {limits}", soft_wrap=True)
    for note in survey.notes:
        console.print(Text(clean_line(note), style="yellow"), soft_wrap=True)


def print_surveys(console: Console, answers: "Sequence[HostAnswer[Survey]]") -> None:
    """The devices of each host below its name; one line for a host that did not answer."""
    for number, answer in enumerate(answers):
        if number:
            console.print()
        if answer.answer is None:
            console.print(Text(clean_line(answer.problem), style="red"), soft_wrap=True)
        else:
            console.print(Text(f"host {answer.host}", style="bold"), soft_wrap=True)
            print_survey(console, answer.answer)


def _describe_rules(rules: LeaseRules) -> str:
    """Root's limits, empty if there are none."""
    found = [
        f"leases{f' of {kind}' if kind else ''} {f'end after {spell_duration(s)}' if s else 'of any length'}"
        for kind, s in sorted(rules.lease_s.items())
        if s or kind
    ]
    if rules.priority is not None:
        found.append(f"priority up to {rules.priority}")
    return ", ".join(found)


def _list_queues(survey: Survey) -> Table:
    """One row per queue: where its devices come from, and our tasks there."""
    texts = ("queue", "class", "devices", "client")
    columns = (*texts, "slots", "tasks here")
    table = new_table(columns, left=texts, wrapped=columns)
    for queue in survey.queues:
        client = Text(clean_line(queue.tool))
        if not queue.is_tool_found:
            client.append(": is not on this machine", style="red")
        table.add_row(
            Text(queue.name),
            Text(queue.kind),
            Text(clean_line(queue.identity)),
            client,
            str(queue.slots),
            str(queue.tasks or ""),
        )
    return table


def print_log(console: Console, log: LeaseLog) -> None:
    """One row per lease, the oldest first."""
    columns = ("began", "user", "device", "held", "end", "command")
    table = new_table(columns, ("began", "user", "device", "end", "command"))
    for lease in log.leases:
        began = datetime.datetime.fromtimestamp(lease.since).astimezone()
        table.add_row(
            began.strftime("%Y-%m-%d %H:%M:%S"),
            Text(lease.user),
            Text(clean_line(", ".join(lease.devices))),
            "?" if lease.held_s is None else format_seconds(lease.held_s),
            Text(_end(lease)),
            Text(clean_line(lease.command)),
        )
    if log.leases:
        print_table(console, table, cut="command")
    elif not log.note:
        days = "the last day" if log.days == 1 else f"the last {log.days} days"
        console.print(f"no lease in {days}", soft_wrap=True)
    if log.note:
        console.print(Text(clean_line(log.note), style="yellow"), soft_wrap=True)


def _end(lease: LoggedLease) -> str:
    if lease.end is LeaseEnd.HELD:
        return "is held"
    end = lease.end.replace("_", " ")
    return end if lease.status is None else f"{end} {lease.status}"


def print_probe(console: Console, report: ProbeReport) -> None:
    """Print the result of a probe, and its consequences."""
    probe = report.probe
    line = Text.assemble(
        f"{probe.device}: ",
        (str(probe.verdict), VERDICT_STYLES[probe.verdict]),
        f" in {format_seconds(probe.seconds)}",
        f": {clean_line(probe.message)}" if probe.message else "",
    )
    console.print(line, soft_wrap=True)
    if report.readmitted:
        console.print(Text(f"{probe.device} is back from quarantine"), soft_wrap=True)
    elif not report.health.is_well:
        good = f"{len(report.health.probes)} of {GOOD_PROBES_NEEDED} good probes"
        reason = clean_line(report.health.reason)
        line = Text(f"{probe.device} is in quarantine: {reason} ({good})")
        console.print(line, soft_wrap=True)


def say_health(state: DeviceState, at: float) -> Text:
    """Whether a device is well; else why it is in quarantine, by whom and since when."""
    health = state.health
    if health.is_well and state.unknown:
        return Text(f"unknown: {clean_line(state.unknown)}", style="yellow")
    if health.is_well:
        return Text("well", style="green")
    ago = format_seconds(max(0.0, at - health.since))
    good = f", {len(health.probes)} of {GOOD_PROBES_NEEDED} good probes" if health.probes else ""
    reason = clean_line(health.reason)
    part = "" if health.device in ("", state.name) else f"{clean_line(health.device)}, "
    return Text(f"quarantine: {reason} ({part}by {health.user}, {ago} ago{good})", style="red")


def say_holder(state: DeviceState) -> str:
    """Who holds a device, with which command; empty for nobody."""
    holder = state.holder
    if holder is None:
        return ""
    command = clean_line(holder.command)
    part = "" if holder.device == state.name else f" (has {clean_line(holder.device)})"
    return f"{holder.user} {holder.pid}: {command}{part}"


def say_share(share: float | None) -> str:
    """A share that may be unknown."""
    return "?" if share is None else f"{100 * share:.0f} %"


def print_findings(console: Console, diagnosis: Diagnosis) -> None:
    """Print one line per finding, aligned, with advice below it."""
    width = max((len(finding.subject) for finding in diagnosis.findings), default=0)
    for finding in diagnosis.findings:
        line = Text.assemble(
            (f"{finding.level:<4}", LEVEL_STYLES[finding.level]),
            f"  {finding.subject:<{width}}  {clean_line(finding.message)}",
        )
        console.print(line, soft_wrap=True, highlight=False)
        if finding.todo:
            console.print(
                Text(f"{'':4}  {'':{width}}  -> {clean_line(finding.todo)}"), soft_wrap=True
            )
