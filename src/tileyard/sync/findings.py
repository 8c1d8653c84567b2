"""Findings of checks as data: hazards in terms of the user's file, each with its fix if that is known.

A comment in that file allows them: ``# tileyard: allow(KIND) REASON``. It applies to the statement on its
line, or, alone there, to the next one: at a finding's access, the other side, or any wait of a deadlock.
"""

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tileyard.base.errors import UsageError
from tileyard.base.model import Record, SourceLine
from tileyard.ir.hazard_kinds import HazardKind
from tileyard.ir.nodes import Unit

FindingKind = HazardKind | Literal["dependence reordered"]

MEANINGS: dict[FindingKind, str] = {
    "read before arrival": "A tile is read before the asynchronous operation that fills it has arrived.",
    "wait without group": (
        "A tile is read behind a wait that does not cover its copy, "
        "because the copy is in no group."
    ),
    "overwritten in flight": "A tile is written while an asynchronous operation to it is in flight.",
    "source changed in flight": "A tile is written while an asynchronous operation may still read it.",
    "overwritten before release": (
        "A tile is overwritten, and nothing orders that after the last read of its old content."
    ),
    "race": "Two accesses to the same element, one of them a write, are not ordered.",
    "missing fence": "An asynchronous operation uses what another role wrote, without a proxy fence between.",
    "uninitialised": "A tile or an output is read where nothing has written.",
    "never written": "An element of an output is compared, and never written.",
    "out of bounds": "An index is outside of the shape of its buffer.",
    "deadlock": "All roles that are left wait for something that nobody will do.",
    "bytes": "A barrier expects more bytes than the copies that end at it bring.",
    "extra arrive": "More arrive at a barrier in one phase than it expects.",
    "dependence reordered": (
        "A pipeline runs statements in an order in which one does not see what another wrote."
    ),
}
"""All kinds of findings. The names are fixed: suppressions, JSON and SARIF use them."""


class TimelineStep(Record):
    """What a role (from 1, 0 outside roles), or a ``unit`` for it, did at a ``line``, 0 if unknown.
    ``mark`` is 2 for the access of a finding, 1 for the other side, else 0.
    """

    role: int
    unit: Unit | Literal[""]
    line: int
    text: str
    mark: Literal[0, 1, 2] = 0


class BlockSpan(Record):
    """What a role (from 1, 0 outside roles), or a ``unit`` for it, did from one step to another, at a
    ``line``, 0 if unknown. A role's wait begins after its step before, an operation where it was issued.
    """

    role: int
    unit: Unit | Literal[""]
    line: int
    text: str
    begin: int
    end: int


class Finding(Record):
    """One mistake: ``access`` happens although ``other`` must come first or is in progress; and the
    ``fix``. ``wait`` did not help; ``waiting`` are the lines of a deadlock's waits. ``roles`` are
    those of ``access`` and ``other``; ``block`` and ``instance``, as in ``M=32, K=96``, are the
    first with it. ``timeline`` has the steps before it, if asked for.
    """

    kind: FindingKind
    message: str
    fix: str
    buffer: str
    block: tuple[int, ...] = ()
    instance: str = ""
    roles: tuple[int, int] = (0, 0)
    access: SourceLine | None = None
    other: SourceLine | None = None
    wait: SourceLine | None = None
    waiting: tuple[SourceLine, ...] = ()
    timeline: tuple[TimelineStep, ...] = ()


_COMMENT = re.compile(r"#\s*tileyard:\s*(allow\b.*)")
_ALLOWED = re.compile(r"allow\s*\(([^()]*)\)(.*)")
_LAYOUT = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_FORM = "write # tileyard: allow(KIND) REASON"


class Allowed(Record):
    """One comment: it allows findings of ``kind`` on the lines ``first`` to ``last`` of its file."""

    kind: FindingKind
    reason: str
    comment: SourceLine
    first: int
    last: int


class Suppressed(Record):
    """A finding that does not gate, and the ``comment`` with the reason."""

    finding: Finding
    reason: str
    comment: SourceLine


class Sieved(Record):
    """Findings that count, findings that are allowed, and comments of the kernel that allow no finding."""

    findings: tuple[Finding, ...]
    suppressed: tuple[Suppressed, ...] = ()
    unused: tuple[Allowed, ...] = ()


def sieve(findings: Sequence[Finding], lines: Mapping[int, SourceLine]) -> Sieved:
    """Separate the findings that comments in a kernel's files allow; ``lines`` are its statements'.
    Raises UsageError for a comment without a reason or a known kind.
    """
    kept: list[Finding] = []
    suppressed: list[Suppressed] = []
    allowed = list(_read(lines.values()))
    used: set[int] = set()
    for finding in findings:
        number = next((i for i, one in enumerate(allowed) if _is_allowed(finding, one)), None)
        if number is None:
            kept.append(finding)
            continue
        used.add(number)
        one = allowed[number]
        suppressed.append(Suppressed(finding=finding, reason=one.reason, comment=one.comment))
    unused = tuple(one for number, one in enumerate(allowed) if number not in used)
    return Sieved(findings=tuple(kept), suppressed=tuple(suppressed), unused=unused)


def read_comments(file: str, text: str) -> Iterator[Allowed]:
    """The comments of a file that allow findings. Raises UsageError for one with wrong syntax."""
    comments: list[tokenize.TokenInfo] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token)
        elif token.type == tokenize.NEWLINE:
            for comment in comments:
                yield from _parse(file, comment, first or token.start[0], token.start[0])
            comments, first = [], 0
        elif token.type not in _LAYOUT:
            first = first or token.start[0]


def _read(lines: Iterable[SourceLine]) -> Iterator[Allowed]:
    by_file: dict[str, set[int]] = {}
    for where in lines:
        by_file.setdefault(where.file, set()).add(where.line)
    for file, numbers in by_file.items():
        try:
            text = Path(file).read_text(encoding="utf-8")
            bodies = ast.parse(text).body
        except (
            OSError,
            ValueError,
            SyntaxError,
        ):  # there is no file, or it has changed since it ran
            continue
        spans = [(one.lineno, one.end_lineno or one.lineno) for one in bodies]
        own = [span for span in spans if any(span[0] <= line <= span[1] for line in numbers)]
        for allowed in read_comments(file, text):
            if any(start <= allowed.first and allowed.last <= end for start, end in own):
                yield allowed


def _parse(file: str, token: tokenize.TokenInfo, first: int, last: int) -> Iterator[Allowed]:
    said = _COMMENT.match(token.string)
    if said is None:
        return
    comment = SourceLine(file=file, line=token.start[0])
    place = f"{file}:{comment.line}"
    parts = _ALLOWED.match(said[1])
    if parts is None:
        raise UsageError(f"{place}: {said[1].strip()!r} names no kind of finding", _FORM)
    named = " ".join(re.split(r"[\s_-]+", parts[1].strip().lower()))
    kind = next((one for one in MEANINGS if one == named), None)
    if kind is None:
        near = difflib.get_close_matches(named, MEANINGS, n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join(MEANINGS)
        raise UsageError(
            f"{place}: there is no kind of finding {parts[1]!r}", f"there are: {known}{guess}"
        )
    reason = parts[2].strip(" \t:,-")
    if not reason:
        raise UsageError(f"{place}: allow({parts[1]}) has no reason", _FORM)
    yield Allowed(kind=kind, reason=reason, comment=comment, first=first, last=last)


def _is_allowed(finding: Finding, allowed: Allowed) -> bool:
    places = (finding.access, finding.other, *finding.waiting)
    return finding.kind == allowed.kind and any(
        place is not None
        and place.file == allowed.comment.file
        and allowed.first <= place.line <= allowed.last
        for place in places
    )
