"""A check of synchronization as a page: each mistake with the lanes of its block around it."""

from collections.abc import Iterator
from pathlib import Path

from tileyard.base.model import Record, SourceLine
from tileyard.base.wording import count_of
from tileyard.pages.report import RunLog, Section, Subject
from tileyard.show.words import clean_line, format_config
from tileyard.sync.findings import Finding, TimelineStep
from tileyard.verbs.check.view.findings import (
    SyncReport,
    choose_lanes,
    cut_steps,
    describe_check,
    name_kind,
    name_lane,
    name_place,
)

MOST_FINDINGS, MOST_LANES = 50, 12
"""Maximum number of mistakes that are shown one by one, and of lanes of each."""


class Step(Record):
    """A row of a table of lanes: what was done in the lane with this number, or None for steps left out.
    ``mark`` is 2 for the access that is wrong, 1 for the other side.
    """

    line: str
    text: str
    lane: int | None
    mark: int = 0


class Mistake(Record):
    """A finding: its message, its lines with their source, and what the lanes of the block did before it."""

    head: str
    kind: str
    facts: tuple[tuple[str, str], ...]
    lanes: tuple[str, ...]
    steps: tuple[Step, ...]


def describe_checked(result: SyncReport, _log: RunLog) -> list[Subject]:
    """A check of the kernels of a file."""
    return [
        Subject(
            title=f"Synchronization of {Path(result.file).name}",
            kind="Check",
            answer=sum_up(result),
            facts=tuple(_list_facts(result)),
            sections=tuple(_list_sections(result)),
        )
    ]


def sum_up(result: SyncReport) -> str:
    """The result of a check in one sentence."""
    found = sum(len(one.findings) for one in result.kernels)
    checked = {one.kernel for one in result.kernels}
    kernels = count_of(len(checked), "kernel")
    left = ""
    if result.not_checked:
        left = f"; {count_of(len(result.not_checked), 'kernel')} could not be checked"
    if not found:
        return f"No mistakes were found in the synchronization of {kernels}{left}."
    wrong = sorted({one.kernel for one in result.kernels if one.findings})
    of = f", of {kernels}" if len(checked) > 1 else ""
    return f"{count_of(found, 'mistake')} in {', '.join(map(clean_line, wrong))}{of}{left}."


def _list_facts(result: SyncReport) -> Iterator[tuple[str, str]]:
    yield "file", result.file
    yield "planned by TileLang for", result.architecture
    yield "blocks", str(sum(one.blocks for one in result.kernels))
    suppressed = sum(len(one.suppressed) for one in result.kernels)
    yield "suppressed", str(suppressed) if suppressed else ""


def _list_sections(result: SyncReport) -> Iterator[Section]:
    found = [
        _describe(result, finding, f"{one.kernel} {format_config(one.config)}".strip())
        for one in result.kernels
        for finding in one.findings
    ]
    if found:
        yield Section(
            name="mistakes",
            title="Mistakes",
            template="mistakes.html",
            shown=found[:MOST_FINDINGS],
        )
    lines = [clean_line(line) for text in describe_check(result) for line in text.splitlines()]
    yield Section(
        name="lines", title="In the check's own words", template="lines.html", shown=lines
    )


def _describe(result: SyncReport, finding: Finding, kernel: str) -> Mistake:
    block = ", ".join(map(str, finding.block))
    places = (
        ("found at", finding.access),
        ("the other side", finding.other),
        ("a wait that did not help", finding.wait),
        *(("waits at", where) for where in finding.waiting),
    )
    facts = [("kernel", kernel), ("to do", finding.fix)]
    facts += [
        ("first in", " of ".join(filter(None, (block and f"block {block}", finding.instance))))
    ]
    facts += [(word, _quote(result.file, where)) for word, where in places if where is not None]
    steps = cut_steps(finding.timeline)
    lanes = choose_lanes([one for one in steps if one is not None], MOST_LANES)
    return Mistake(
        head=clean_line(finding.message),
        kind=name_kind(finding.kind),
        facts=tuple((word, clean_line(text)) for word, text in facts if text),
        lanes=tuple(name_lane(*one) for one in lanes),
        steps=tuple(_list_steps(steps, lanes)),
    )


def _list_steps(steps: list[TimelineStep | None], lanes: list[tuple[int, str]]) -> Iterator[Step]:
    for one in steps:
        if one is None:
            yield Step(line="", text="...", lane=None)
        elif (one.role, str(one.unit)) in lanes:
            yield Step(
                line=str(one.line or "?"),
                text=clean_line(one.text),
                lane=lanes.index((one.role, str(one.unit))),
                mark=one.mark,
            )


def _quote(file: str, where: SourceLine) -> str:
    """A place with the text of its line, if that can be read."""
    place = name_place(file, where)
    try:
        lines = Path(where.file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError):
        return place
    return f"{place}: {lines[where.line - 1].strip()}" if 0 < where.line <= len(lines) else place
