"""A run of a suite as GitHub's Markdown, in blocks that can be omitted from the end. Foreign text is escaped:
it cannot become a heading, a link, HTML or a column.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from tileyard.base.model import Outcome
from tileyard.base.wording import count_of
from tileyard.show.words import clean_line, format_seconds, why
from tileyard.verbs.test.result.result import CaseVerdict, SuiteResult
from tileyard.verbs.test.view.words import (
    STOPS,
    Rerun,
    ask_about_references,
    describe_end,
    describe_time,
    failed_attempts,
    find_longest,
    group_alike,
    group_by_kind,
    rerun_command,
)

ROWS = 200
FEW = 5
NAMED = 50
CELL_LENGTH = 300
_ACTIVE = re.compile(r"[\\`*_\[\]<>&|~#@$!:]")
"""Characters that Markdown, HTML or GitHub could interpret; as entities they are plain text."""


def render_page(result: SuiteResult, rerun: Rerun | None = None) -> Iterator[str]:
    """Blocks of the page, the most important first; each is complete in itself."""
    command = rerun or rerun_command(result.path)
    yield from _head(result)
    failed, spared = result.failed + result.faults, result.spared
    alike = group_alike(failed)
    yield from _table(
        "Failed",
        ("outcome", "case", "message", "run it again"),
        (
            (
                str(group[0].outcome),
                _cases(group),
                text(why(group[0])),
                code(command(group[0].case)),
            )
            for group in alike[:ROWS]
        ),
        len(failed),
        sum(map(len, alike[ROWS:])),
    )
    yield from _table(
        "In quarantine, failed, not counted",
        ("outcome", "case", "message", "owner", "until", "reason"),
        ((str(v.outcome), code(v.case), text(why(v)), *_quarantine(v)) for v in spared[:ROWS]),
        len(spared),
        len(spared) - ROWS,
    )
    yield from _table(
        "Flaky",
        ("case", "attempts", "failed with"),
        ((code(v.case), str(len(v.attempts)), text(_say_failed(v))) for v in result.flaky[:ROWS]),
        len(result.flaky),
        len(result.flaky) - ROWS,
    )
    yield from _groups("Never ran", [(v.case, why(v)) for v in result.never_ran if v.gates])
    if result.uncovered:
        names = ", ".join(code(name) for name in result.uncovered[:NAMED])
        more = len(result.uncovered) - NAMED
        yield f"\n**Families without a run:** {names}{f' and {more} more' if more > 0 else ''}\n"
    yield from _groups("Left out", [(one.case, one.reason) for one in result.left_out])
    longest = find_longest(result, FEW)
    yield from _table(
        "Longest",
        ("case", "time", "share"),
        ((code(v.case), format_seconds(seconds), f"{share:.1%}") for v, seconds, share in longest),
        len(longest),
    )


def text(words: str, limit: int = CELL_LENGTH) -> str:
    """Plain text as Markdown that shows it unchanged, on one line."""
    return _ACTIVE.sub(lambda found: f"&#{ord(found[0])};", clean_line(words, limit))


def code(words: str) -> str:
    """The same in a code font. Without backquotes: in a table these may contain no ``|``."""
    return f"<code>{text(words)}</code>" if words else ""


def _head(result: SuiteResult) -> Iterator[str]:
    wrong = describe_end(result)
    verdict = "failed" if wrong else "passed" if result.reason == "done" else result.reason
    policy = f", policy {text(result.policy)}" if result.policy else ""
    cases = count_of(len(result.verdicts), "case")
    yield f"\n## Suite {text(result.suite)}: {verdict}\n"
    yield f"\n{cases} in {format_seconds(result.seconds)}{policy}, run {text(result.run)}\n"
    for line in (wrong, STOPS[result.reason], *result.notes, ask_about_references(result)):
        if line:
            yield f"\n**{text(line, limit=0)}**\n"
    counts = result.count()
    rows = [(str(one), str(counts[one])) for one in Outcome if counts[one]]
    rows += [("of these flaky", str(len(result.flaky)))] if result.flaky else []
    rows += [("left out", str(len(result.left_out)))] if result.left_out else []
    yield _heading(("outcome", "cases"))
    yield from map(_row, rows)
    if result.makespan is not None and (time := describe_time(result.makespan)):
        yield f"\n{text(time, limit=0)}\n"


def _table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], number: int, more: int = 0
) -> Iterator[str]:
    """A table of ``number`` cases, except ``more``; one block per row, so that it may end anywhere."""
    if not number:
        return
    yield f"\n### {title} ({number})\n" + _heading(columns)
    yield from map(_row, rows)
    if more > 0:
        yield f"\nand {more} more\n"


def _heading(columns: Sequence[str]) -> str:
    return "\n" + _row(columns) + _row(["---"] * len(columns))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _groups(title: str, cases: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Folded, because there may be many and they are rarely new."""
    if not cases:
        return
    groups = group_by_kind(cases)
    lines = [
        f"<li>{len(names)}: {text(reason)}: {', '.join(map(code, names[:FEW]))}"
        f"{', ...' if len(names) > FEW else ''}</li>\n"
        for reason, names in groups[:NAMED]
    ]
    if len(groups) > NAMED:
        others = sum(len(names) for _, names in groups[NAMED:])
        lines.append(f"<li>{others}: for {count_of(len(groups) - NAMED, 'other reason')}</li>\n")
    # HTML without empty lines, which would end it.
    summary = f"<summary>{title} ({len(cases)})</summary>"
    yield f"\n<details>{summary}\n<ul>\n{''.join(lines)}</ul>\n</details>\n"


def _cases(group: Sequence[CaseVerdict]) -> str:
    """The case of a row, or several that failed with the same message."""
    if len(group) == 1:
        return code(group[0].case)
    names = ", ".join(code(one.case) for one in group[:NAMED])
    more = f" and {len(group) - NAMED} more" if len(group) > NAMED else ""
    return f"{count_of(len(group), 'case')}, the same message: {names}{more}"


def _quarantine(verdict: CaseVerdict) -> tuple[str, str, str]:
    spared = verdict.quarantine
    if spared is None:
        return "", "", ""
    return text(spared.owner), str(spared.until), text(spared.reason)


def _say_failed(verdict: CaseVerdict) -> str:
    last = failed_attempts(verdict)[-1]
    return f"{last.outcome}: {last.message}" if last.message else str(last.outcome)
