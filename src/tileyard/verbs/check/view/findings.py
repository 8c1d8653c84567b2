"""The findings of ``tileyard check``, as text and as one document."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tileyard.base.events import describe_note
from tileyard.base.model import Record, SourceLine
from tileyard.base.wording import count_of
from tileyard.show.words import format_config
from tileyard.sync.findings import MEANINGS, Allowed, Finding, FindingKind, Suppressed, TimelineStep
from tileyard.workers.protocol import SyncChecked

WIDTH = 80
MOST_LANES = 5
_MARKS = ("  ", "1>", "2>")
_UNITS = ("", "cp_async", "tma", "tma_store", "wgmma")
_BETWEEN = " | "
SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_RULES = list(MEANINGS)


BEFORE, HEAD, TAIL = 4, 10, 12
"""Steps shown before the first mark, and between two far marks: after the first and before the second."""


def draw_timeline(finding: Finding) -> Iterator[str]:
    """Lines of plain characters, each with at most 80; none if a finding has no timeline."""
    steps = cut_steps(finding.timeline)
    if not steps:
        return
    lanes = choose_lanes([step for step in steps if step is not None])
    width = (WIDTH - 3 - len(_BETWEEN) * (len(lanes) - 1)) // len(lanes)
    yield _row("", [name_lane(*lane) for lane in lanes], width)
    for step in steps:
        if step is None:
            yield "   ..."
            continue
        lane = (step.role, step.unit)
        if lane in lanes:
            text = f"{step.line or '?'} {step.text}"
            yield _row(_MARKS[step.mark], [text if one == lane else "" for one in lanes], width)
    if finding.other is not None:
        yield "   1> is the earlier of the two accesses, 2> the later one; numbers are lines"
    else:
        yield "   2> is where it was found; numbers are lines"


def cut_steps(steps: Sequence[TimelineStep]) -> list[TimelineStep | None]:
    """The steps around the marks; None replaces those that are left out."""
    marked = [i for i, step in enumerate(steps) if step.mark]
    start = max(0, min(marked, default=len(steps) - TAIL) - BEFORE)
    shown = list(steps[start:])
    if len(shown) <= HEAD + TAIL:
        return [*shown]
    return [*shown[:HEAD], None, *shown[-TAIL:]]


def choose_lanes(steps: Sequence[TimelineStep], most: int = MOST_LANES) -> list[tuple[int, str]]:
    """The lanes of the marked steps, and the busiest others."""
    counted = Counter((step.role, str(step.unit)) for step in steps)
    marked = {(step.role, step.unit) for step in steps if step.mark}
    ranked = sorted(counted, key=lambda lane: (lane not in marked, -counted[lane]))
    return sorted(ranked[:most], key=lambda lane: (lane[0], _UNITS.index(lane[1])))


def name_lane(role: int, unit: str) -> str:
    """``role 1: tma``, or ``block`` outside roles."""
    who = f"role {role}" if role else "block"
    return f"{who}: {unit}" if unit else who


def _row(mark: str, cells: Sequence[str], width: int) -> str:
    return f"{mark:<3}{_BETWEEN.join(_fit(cell, width) for cell in cells)}".rstrip()


def _fit(cell: str, width: int) -> str:
    """A cell shortened to its width; it keeps its end, the stage of a tile."""
    return f"{cell if len(cell) <= width else f'{cell[: width - 5]}~{cell[-4:]}':<{width}}"


class NotChecked(Record):
    """A kernel that could not be elaborated, or fails by itself; ``reason`` names it, too."""

    kernel: str
    reason: str


class SyncReport(Record):
    """A check of a ``file``: ``kernels`` in its order, once per config; ``sizes`` are those of their spaces.
    With an ``architecture`` they were checked as TileLang's passes plan them for it.
    """

    file: str
    kernels: tuple[SyncChecked, ...]
    not_checked: tuple[NotChecked, ...] = ()
    sizes: dict[str, int] = {}
    architecture: str = ""

    @property
    def exit_status(self) -> int:
        """1 if there are mistakes, else 2 if a kernel could not be checked, else 0."""
        if any(one.findings for one in self.kernels):
            return 1
        return 2 if self.not_checked else 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What TileLang makes of lines of the kernels, one note for each kernel and line."""
        found = {(one.kernel, each.where): each for one in self.kernels for each in one.notes}
        return tuple(dict.fromkeys(map(describe_note, found.values())))

    @property
    def unused(self) -> tuple[Allowed, ...]:
        """The comments that allow nothing, whichever kernel has their lines."""
        used = {each.comment for one in self.kernels for each in one.suppressed}
        found = {each.comment: each for one in self.kernels for each in one.unused}
        return tuple(each for where, each in found.items() if where not in used)


def describe_check(report: SyncReport, timelines: int = 0) -> Iterator[str]:
    """The lines of a report: findings, then a line per kernel, then suppressed findings. The first
    ``timelines`` findings are followed by their timelines.
    """
    left = timelines
    for one in report.kernels:
        for finding in one.findings:
            yield describe_finding(report.file, finding)
            yield from draw_timeline(finding) if left else ()
            left = max(left - 1, 0)
        yield from (f"not checked: {reason}" for reason in one.unchecked)
    yield from report.notes
    for one in report.kernels:
        yield describe_kernel(one, report.architecture)
        yield from (f"    {line}" for line in _describe_extent(one))
    for kernel, count in Counter(one.kernel for one in report.kernels).items():
        if count < (size := report.sizes.get(kernel, 1)):
            more = "; --all-configs checks them all" if count == 1 else ""
            yield f"{kernel}: checked {count} of {size} configs of the space{more}"
    yield from (f"not checked: {one.reason}" for one in report.not_checked)
    for one in report.kernels:
        for each in one.suppressed:
            place = name_place(report.file, each.finding.access)
            yield (
                f"suppressed: {place}: {each.finding.message}\n"
                f"    allowed by line {each.comment.line}: {each.reason}"
            )
    for allowed in report.unused:
        yield (
            f"unused: {name_place(report.file, allowed.comment)}: "
            f"allow({name_kind(allowed.kind)}) suppresses nothing"
        )


def describe_kernel(checked: SyncChecked, architecture: str = "") -> str:
    """The result of one config, in one line."""
    config = f" {format_config(checked.config)}" if checked.config else ""
    config += f" as TileLang plans it for {architecture}" if architecture else ""
    if not checked.blocks:
        return f"{checked.kernel}{config}: nothing was checked"
    found = count_of(len(checked.findings), "mistake") if checked.findings else "no mistakes"
    blocks = f"{checked.blocks} of {count_of(checked.grid, 'block')}"
    suppressed = f", {len(checked.suppressed)} suppressed" if checked.suppressed else ""
    return f"{checked.kernel}{config}: {found} in {blocks}{_describe_shapes(checked)}{suppressed}"


def describe_finding(file: str, finding: Finding) -> str:
    """A finding in two lines, the first with place and kind; ``file`` stands in for an unknown place."""
    place = name_place(file, finding.access)
    return (
        f"{place}: {finding.message}{_describe_instance(finding)} [{name_kind(finding.kind)}]\n"
        f"    {finding.fix}"
    )


def name_kind(kind: FindingKind) -> str:
    """A kind in one word, as in rules and comments."""
    return kind.replace(" ", "-")


def name_place(file: str, where: SourceLine | None) -> str:
    """A line in the notation that editors follow."""
    return f"{file}:?" if where is None else f"{where.file}:{where.line}"


def _describe_instance(finding: Finding) -> str:
    """`` (block 0, 1 of M=32, K=96)``: the first instance of a mistake; empty if there is only one place."""
    block = f"block {', '.join(map(str, finding.block))}" if finding.block else ""
    place = " of ".join(filter(None, [block, finding.instance]))
    return f" ({place})" if place else ""


def _describe_shapes(checked: SyncChecked) -> str:
    """`` of 9 shapes``; empty if sizes make no difference."""
    return f" of {count_of(len(checked.instances), 'shape')}" if any(checked.instances) else ""


def _describe_extent(checked: SyncChecked) -> Iterator[str]:
    """The sizes, and the iterations of the loops that depend on them."""
    names = dict.fromkeys(name for one in checked.instances for name in one)
    values = {name: sorted({one[name] for one in checked.instances}) for name in names}
    if values:
        yield "shapes: " + "; ".join(f"{name}={_list(found)}" for name, found in values.items())
    for line, trips in checked.trips.items():
        if line in checked.periods:
            every = (
                "iteration" if checked.periods[line] == 1 else f"{checked.periods[line]} iterations"
            )
            yield f"the loop of line {line} is checked for every trip count: its state recurs every {every}"
        elif len(trips) > 1:
            yield f"the loop of line {line} ran {_list(trips)} times"


def _list(numbers: list[int] | tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def describe_sarif(report: SyncReport, root: Path, version: str) -> dict[str, Any]:
    """The log of a check by this ``version``; URIs of files below ``root`` are relative to it. Kernels and
    parts that were not checked, and comments that allow nothing, are notifications.
    """
    results = []
    for one in report.kernels:
        results += [_result(root, one, finding) for finding in one.findings]
        results += [_result(root, one, allowed) for allowed in one.suppressed]
    notices = [_notice("error", f"not checked: {one.reason}") for one in report.not_checked]
    for one in report.kernels:
        notices += [
            _notice("warning", f"{one.kernel}: not checked: {text}") for text in one.unchecked
        ]
    notices += [_notice("note", text.removeprefix("note: ")) for text in report.notes]
    for allowed in report.unused:
        notice = _notice("note", f"allow({name_kind(allowed.kind)}) suppresses nothing")
        notices.append({**notice, "locations": [_location(root, allowed.comment)]})
    rules = [
        {"id": name_kind(kind), "shortDescription": {"text": MEANINGS[kind]}} for kind in _RULES
    ]
    driver = {"name": "tileyard check", "version": version, "rules": rules}
    invocation = {
        "executionSuccessful": not report.not_checked,
        "toolExecutionNotifications": notices,
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(root: Path, checked: SyncChecked, found: Finding | Suppressed) -> dict[str, Any]:
    finding = found.finding if isinstance(found, Suppressed) else found
    others = [("the other side", finding.other), ("the wait that did not help", finding.wait)]
    others += [("waits here", where) for where in finding.waiting]
    related = [
        {"id": number, "message": {"text": text}, **_location(root, where)}
        for number, (text, where) in enumerate(others, 1)
        if where is not None
    ]
    result: dict[str, Any] = {
        "ruleId": name_kind(finding.kind),
        "ruleIndex": _RULES.index(finding.kind),
        "level": "error",
        "message": {"text": "\n".join(filter(None, (finding.message, finding.fix)))},
        "locations": [] if finding.access is None else [_location(root, finding.access)],
        "relatedLocations": related,
        "properties": {
            "kernel": checked.kernel,
            "config": checked.config,
            "block": list(finding.block),
        },
    }
    if isinstance(found, Suppressed):
        place = _location(root, found.comment)
        result["suppressions"] = [
            {"kind": "inSource", "justification": found.reason, "location": place}
        ]
    return result


def _notice(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": text}}


def _location(root: Path, where: SourceLine) -> dict[str, Any]:
    path = Path(where.file)
    artifact = {"uri": path.as_uri() if path.is_absolute() else quote(where.file)}
    if path.is_relative_to(root):
        artifact = {"uri": quote(path.relative_to(root).as_posix()), "uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": where.line}}}
