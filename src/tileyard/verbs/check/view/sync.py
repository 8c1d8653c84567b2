"""The findings of ``tileyard check``, as text and as one document."""

from collections import Counter
from collections.abc import Iterator

from tileyard.base.events import describe_note
from tileyard.base.model import Record, SourceLine
from tileyard.base.wording import count_of
from tileyard.show.words import format_config
from tileyard.sync.findings import Finding, FindingKind
from tileyard.sync.suppressions import Allowed
from tileyard.verbs.check.view.timeline import draw_timeline
from tileyard.workers.program_replies import SyncChecked


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
