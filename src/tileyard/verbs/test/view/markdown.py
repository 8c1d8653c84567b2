"""A run of a suite as GitHub's Markdown, in blocks that can be omitted from the end. Foreign text is escaped:
it cannot become a heading, a link, HTML or a column.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome
from tileyard.base.wording import count_of, name_some
from tileyard.show.words import MESSAGE_LENGTH, STOPS, clean_line, format_seconds, why
from tileyard.verbs.test.result.result import CaseVerdict, SuiteResult
from tileyard.verbs.test.view.words import (
    Rerun,
    ask_about_references,
    describe_alike,
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
PAGE_BYTES = 1 << 20
"""Size above which GitHub drops the page of a step."""
PER_LEVEL = 10
"""Maximum number of annotations per level that GitHub shows for a step."""
_COMPILED = re.compile(r"(?<!\S)(?P<file>[^\s:]+):(?P<line>\d+):")
_CUT = "\n\nThere was no room for the rest of this page.\n"


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
        yield f"\n**Families without a run:** {name_some(map(code, result.uncovered), NAMED)}\n"
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
    names = name_some((code(one.case) for one in group), NAMED)
    return f"{count_of(len(group), 'case')}, the same message: {names}"


def _quarantine(verdict: CaseVerdict) -> tuple[str, str, str]:
    spared = verdict.quarantine
    if spared is None:
        return "", "", ""
    return text(spared.owner), str(spared.until), text(spared.reason)


def _say_failed(verdict: CaseVerdict) -> str:
    last = failed_attempts(verdict)[-1]
    return f"{last.outcome}: {last.message}" if last.message else str(last.outcome)


"""Number of cases that an annotation of several names."""


def write_step_summary(result: SuiteResult, path: Path, rerun: Rerun | None = None) -> None:
    """Append Markdown to the file that ``$GITHUB_STEP_SUMMARY`` names, as much as there is room for. Raises
    UsageError if it cannot be written.
    """
    try:
        used = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(_fit(render_page(result, rerun), PAGE_BYTES - used))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def annotations(
    result: SuiteResult, root: Path | None = None, rerun: Rerun | None = None
) -> list[str]:
    """Workflow commands to print, one per line: errors, warnings, and how many more. Files below ``root``,
    the checkout, are relative to it.
    """
    command = rerun or rerun_command(result.path)
    errors, warnings = result.failed + result.faults, result.spared + result.flaky
    suite, folder = clean_line(result.suite), Path(result.path).parent
    lines = []
    for level, verdicts in (("error", errors), ("warning", warnings)):
        groups = group_alike(one for one in verdicts if not one.is_flaky)
        groups += [[one] for one in verdicts if one.is_flaky]
        lines += [
            _annotate(level, one, (folder, root), command(one[0].case))
            for one in groups[:PER_LEVEL]
        ]
        if more := sum(map(len, groups[PER_LEVEL:])):
            text = f"{count_of(more, f'more {level}')} of suite {suite}: see its report"
            lines.append(_command("notice", {"title": suite}, text))
    if result.never_ran:
        text = f"{count_of(len(result.never_ran), 'case')} of suite {suite} never ran"
        lines.append(_command("notice", {"title": suite}, text))
    return lines


def _fit(blocks: Iterable[str], room: int) -> bytes:
    """As many blocks as there is room for, and a line that reports missing ones."""
    page = bytearray()
    for block in blocks:
        encoded = block.encode("utf-8", "replace")
        if len(page) + len(encoded) + len(_CUT) > room:
            return bytes(page) + (_CUT.encode() if len(page) + len(_CUT) <= room else b"")
        page += encoded
    return bytes(page)


def _annotate(
    level: str, group: Sequence[CaseVerdict], folders: tuple[Path, Path | None], rerun: str
) -> str:
    """One annotation for a case, or for several that failed with one message, at the first one's line.
    ``folders`` are those of the suite and the checkout.
    """
    properties: dict[str, str] = {}
    folder, root = folders
    verdict = group[0]
    said = _say_why(verdict)
    file, line = _find_place(verdict, folder)
    if file and line.isdecimal():
        properties["file"] = _below(file, root)
        properties["line"] = line
    properties["title"] = f"{_state(verdict)}: {verdict.case}"
    if len(group) > 1:
        properties["title"] = f"{_state(verdict)}: {count_of(len(group), 'case')}"
        names = name_some((clean_line(one.case) for one in group), NAMED)
        said = f"{describe_alike(group)}\n{names}"
    return _command(level, properties, f"{said}\n{clean_line(rerun)}")


def _find_place(verdict: CaseVerdict, folder: Path) -> tuple[str, str]:
    """File and line of a compiler's error if in the suite, else those that declare the case."""
    found = _COMPILED.search(verdict.message) if verdict.outcome is Outcome.COMPILE_ERROR else None
    if found is not None:
        path = Path(os.path.normpath(folder / found["file"]))
        if path.is_relative_to(folder) and path.is_file():
            return str(path), found["line"]
    file, _, line = verdict.where.rpartition(":")
    return file, line


def _state(verdict: CaseVerdict) -> str:
    if verdict.is_flaky:
        return "flaky"
    return str(verdict.outcome) if verdict.gates else f"{verdict.outcome} in quarantine"


def _say_why(verdict: CaseVerdict) -> str:
    if not verdict.is_flaky:
        return why(verdict)
    last = failed_attempts(verdict)[-1]
    return f"{last.outcome}, then {verdict.outcome}: {clean_line(last.message, MESSAGE_LENGTH)}"


def _below(file: str, root: Path | None) -> str:
    path = Path(file)
    return str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else file


def _command(level: str, properties: dict[str, str], message: str) -> str:
    listed = ",".join(f"{name}={_escape_property(text)}" for name, text in properties.items())
    return f"::{level} {listed}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(clean_line(text)).replace(":", "%3A").replace(",", "%2C")
