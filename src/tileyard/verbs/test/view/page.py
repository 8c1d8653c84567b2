"""A run of a suite as a page: what failed and its logs, how long cases took, and all cases."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tileyard.base.model import WELL, Outcome, Record
from tileyard.base.wording import count_of, name_some
from tileyard.pages.charts import Axis, Chart, Group, Line, draw_axis, draw_bar
from tileyard.pages.report import (
    Column,
    RunLog,
    Section,
    Subject,
    Table,
    Words,
    find_timeline,
    keep_first,
    make_table,
)
from tileyard.show.words import STOPS, clean_line, format_seconds, format_share, format_time, why
from tileyard.verbs.test.result.result import CaseVerdict, Makespan, SuiteResult
from tileyard.verbs.test.view.words import (
    SHORT_S,
    ask_about_references,
    describe_alike,
    describe_end,
    describe_guess,
    failed_attempts,
    find_longest,
    find_telling,
    group_alike,
    group_by_kind,
    log_of,
    read_tail,
    rerun_command,
    run_s,
)

MOST_GROUPS, MOST_NAMES, LONGEST = 50, 30, 20
"""Maximum number of failures with a log each, of names in each, and of the longest cases."""
LOG_BYTES, ALL_LOGS_BYTES = 8 << 10, 400 << 10
"""Maximum size of the end of a log, and of all of them together."""
MESSAGE = 160
ALL_CASES = Words(
    see="Click a column's head to sort. The filter finds cases with all of its words, such as a part of a "
    "name or of a message.",
    example="mismatch softmax",
)


class Failure(Record):
    """Cases that ended alike: a line on them, what is known, the command that runs one again, and a log."""

    outcome: str
    head: str
    facts: tuple[tuple[str, str], ...]
    log: str


def describe_suite(result: SuiteResult, log: RunLog) -> list[Subject]:
    """A run of a suite."""
    return [
        Subject(
            title=f"Suite {clean_line(result.suite)}",
            kind=f"Test run {result.run}",
            answer=sum_up(result),
            facts=tuple(_list_facts(result, log)),
            sections=tuple(_list_sections(result, log)),
        )
    ]


def sum_up(result: SuiteResult) -> str:
    """The result of a run in one sentence."""
    cases = count_of(len(result.verdicts), "case")
    spared = len(result.spared)
    remarks = [
        f"{len(result.flaky)} flaky" if result.flaky else "",
        f"{count_of(spared, 'failure')} in quarantine, not counted" if spared else "",
        STOPS[result.reason],
    ]
    more = "".join(f"; {one}" for one in remarks if one)
    if wrong := describe_end(result):
        return f"Failed: {wrong}, of {cases}{more}."
    return f"Passed: {cases} in {format_seconds(result.seconds)}{more}."


def _list_facts(result: SuiteResult, log: RunLog) -> Iterator[tuple[str, str]]:
    counts = result.count()
    yield from log.facts
    yield "policy", result.policy
    yield "suite", result.path
    yield "cases", ", ".join(f"{counts[one]} {one}" for one in Outcome if counts[one])
    yield "left out", str(len(result.left_out)) if result.left_out else ""
    yield "devices", ", ".join(one.name for one in log.view.about.devices)
    yield "machine", ", ".join(dict.fromkeys(one.identity for one in log.view.about.devices))
    yield "time", format_seconds(result.seconds)
    if (span := result.makespan) is not None:
        yield "work", f"{format_seconds(span.total_s)} on {count_of(span.slots, 'slot')}"
    yield "question", ask_about_references(result)


def _list_sections(result: SuiteResult, log: RunLog) -> Iterator[Section]:
    room = ALL_LOGS_BYTES
    kinds = (
        ("failed", "Failed", result.failed),
        ("faults", "Failed by devices, queues or hosts", result.faults),
        ("spared", "In quarantine: failed, not counted", result.spared),
        ("flaky", "Flaky: passed after they had failed", result.flaky),
    )
    for name, title, verdicts in kinds:
        if verdicts:
            failures, room = _list_failures(result, verdicts, room, log.home)
            yield Section(name=name, title=title, template="failures.html", shown=failures)
    chart = _draw_outcomes(result)
    yield Section(name="outcomes", title=chart.title, template="rows.html", shown=chart)
    if result.makespan is not None:
        chart = _draw_makespan(result.makespan)
        yield Section(name="makespan", title=chart.title, template="rows.html", shown=chart)
    if longest := find_longest(result, LONGEST):
        chart = _draw_longest(longest, len(result.verdicts))
        yield Section(name="longest", title=chart.title, template="rows.html", shown=chart)
    yield from find_timeline(log, result.seconds)
    yield Section(
        name="cases",
        title="All cases",
        template="table.html",
        shown=ALL_CASES,
        data=list_cases(result),
    )
    ends = [(one.case, one.reason) for one in result.left_out]
    ends += [(one.case, why(one)) for one in result.never_ran]
    lines = [
        f"{count_of(len(names), 'case')}: {clean_line(reason)}: {_name_few(names)}"
        for reason, names in group_by_kind(ends)
    ]
    lines += [f"no case of family {clean_line(one)} ran" for one in result.uncovered]
    lines += map(clean_line, result.notes)
    if lines:
        yield Section(name="notes", title="Left out, and notes", template="lines.html", shown=lines)


def _list_failures(
    result: SuiteResult, verdicts: Sequence[CaseVerdict], room: int, home: Path
) -> tuple[list[Failure], int]:
    """Failures by their message, each with the end of a log while there is ``room`` for it in the page, and
    the room that is left.
    """
    rerun = rerun_command(result.path)
    found = []
    groups = group_alike(verdicts)
    for group in groups[:MOST_GROUPS]:
        telling = find_telling(group, home)
        path = log_of(telling, home)
        text = read_tail(path, min(LOG_BYTES, room)) if path is not None and room > 0 else ""
        room -= len(text.encode())
        first = group[0]
        head = describe_alike(group) if len(group) > 1 else f"{first.case}: {_say_why(first)}"
        facts = [("cases", _name_few([one.case for one in group]))] if len(group) > 1 else []
        facts += [
            (f"attempt {number}", _say_attempt(first, number)) for number in _list_attempts(first)
        ]
        facts += [("where", first.where), ("run it again", rerun(first.case))]
        if (quarantine := first.quarantine) is not None:
            facts.append(
                ("quarantine", f"{quarantine.owner}, until {quarantine.until}: {quarantine.reason}")
            )
        facts.append(("log", str(path) if path is not None else ""))
        shown = tuple((word, clean_line(one)) for word, one in facts if one)
        found.append(
            Failure(outcome=_say_outcome(first), head=clean_line(head), facts=shown, log=text)
        )
    more = sum(map(len, groups[MOST_GROUPS:]))
    if more:
        text = f"{count_of(more, 'more case')}: see the table of all cases"
        found.append(Failure(outcome="", head=text, facts=(), log=""))
    return found, room


def _say_outcome(verdict: CaseVerdict) -> str:
    return "flaky" if verdict.is_flaky else str(verdict.outcome)


def _say_why(verdict: CaseVerdict) -> str:
    failed = failed_attempts(verdict)
    if verdict.is_flaky and failed:
        return f"before it passed, {failed[-1].outcome}: {failed[-1].message}"
    return why(verdict)


def _list_attempts(verdict: CaseVerdict) -> range:
    """The attempts, from 1, if there were several."""
    return range(1, len(verdict.attempts) + 1) if len(verdict.attempts) > 1 else range(0)


def _say_attempt(verdict: CaseVerdict, number: int) -> str:
    one = verdict.attempts[number - 1]
    said = ", ".join(filter(None, (str(one.outcome), one.device, format_seconds(one.run_s))))
    return f"{said}: {one.message}" if one.message else said


def _draw_outcomes(result: SuiteResult) -> Chart:
    counts = result.count()
    total = max(len(result.verdicts), 1)
    rows = [
        Line(
            before=(str(one),),
            drawing=draw_bar(counts[one] / total, "" if one in WELL else "bad"),
            after=(str(counts[one]), format_share(counts[one] / total, 1)),
        )
        for one in Outcome
        if counts[one]
    ]
    well = sum(counts[one] for one in WELL)
    return Chart(
        title="Outcomes",
        see=f"{well} of {count_of(len(result.verdicts), 'case')} ended well.",
        label="share of cases",
        columns=("outcome",),
        after=("cases", "share"),
        groups=(Group(rows=tuple(rows)),),
    )


def _draw_makespan(span: Makespan) -> Chart:
    """The least possible time, the predicted one, and the one achieved."""
    times = (
        ("lower bound", span.bound_s, "worse"),
        ("predicted", span.predicted_s, ""),
        ("achieved", span.achieved_s, "best"),
    )
    most_s = max(seconds for _, seconds, _ in times) or 1.0
    axis = Axis(low=0, high=most_s)
    gap_s = span.achieved_s - span.bound_s
    over = f"this run ended {format_share(gap_s / (span.bound_s or 1.0), 1)} above it."
    if span.achieved_s < SHORT_S:
        over = "so short a run says little of their order."
    elif gap_s > span.bound_s:
        over = f"this run ended {format_seconds(gap_s)} after it."
    rest = f" Where the other time went: {clean_line(span.reason)}." if span.reason else ""
    guess = f" The prediction is {describe_guess(span)}." if span.guessed else ""
    return Chart(
        title="Time against the least possible",
        see=f"No order of these cases ends before the lower bound, the longest piece or the work divided by "
        f"{count_of(span.slots, 'slot')}. It contains only the time in which cases ran, without starting "
        f"processes, builds and steps beside devices; {over}{rest}{guess}",
        label="seconds",
        axis=draw_axis(axis),
        columns=("end of the run",),
        after=("time",),
        groups=(
            Group(
                rows=tuple(
                    Line(
                        before=(name,),
                        drawing=draw_bar(seconds / most_s, kind, axis),
                        after=(_say_seconds(seconds),),
                    )
                    for name, seconds, kind in times
                )
            ),
        ),
    )


def _say_seconds(seconds: float) -> str:
    """With the digits that a short time needs."""
    return format_seconds(seconds) if seconds >= 1 else format_time(seconds * 1e9)


def _draw_longest(longest: Sequence[tuple[CaseVerdict, float, float]], cases: int) -> Chart:
    most_s = longest[0][1]
    axis = Axis(low=0, high=most_s)
    part = sum(share for *_, share in longest)
    return Chart(
        title="The longest cases",
        see=f"The {len(longest)} longest of {count_of(cases, 'case')} take {format_share(part)} of the time "
        "of all runs.",
        label="seconds",
        axis=draw_axis(axis),
        columns=("case", "outcome"),
        after=("time", "share"),
        groups=(
            Group(
                rows=tuple(
                    Line(
                        before=(clean_line(verdict.case), str(verdict.outcome)),
                        drawing=draw_bar(seconds / most_s, "bad" if verdict.is_bad else "", axis),
                        after=(_say_seconds(seconds), format_share(share, 1)),
                    )
                    for verdict, seconds, share in longest
                )
            ),
        ),
    )


def list_cases(result: SuiteResult) -> Table:
    """All cases in the suite's order."""
    columns = (
        Column(name="#", kind="number"),
        Column(name="case"),
        Column(name="outcome", kind="shared"),
        Column(name="time", kind="seconds"),
        Column(name="attempts", kind="number"),
        Column(name="device", kind="shared"),
        Column(name="remarks", kind="shared", is_long=True),
    )
    rows = [
        (
            number,
            clean_line(one.case),
            _say_outcome(one),
            run_s(one),
            len(one.attempts),
            one.attempts[-1].device if one.attempts else "",
            clean_line(_say_remark(one), MESSAGE),
        )
        for number, one in enumerate(result.verdicts, start=1)
    ]
    is_bad = [one.is_bad for one in result.verdicts]
    kept = keep_first(rows, result.run, lambda row: not is_bad[int(row[0] or 1) - 1])
    return make_table(columns, kept, choice="outcome", by="#")


def _say_remark(verdict: CaseVerdict) -> str:
    parts = [why(verdict) if verdict.is_bad or verdict.message else ""]
    if verdict.quarantine is not None:
        parts.append(f"in quarantine: {verdict.quarantine.reason}")
    return "; ".join(filter(None, parts))


def _name_few(names: Sequence[str]) -> str:
    return name_some(map(clean_line, names), MOST_NAMES)
