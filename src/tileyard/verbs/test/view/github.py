"""Reports a suite's run to GitHub Actions: a page for the job, and annotations at the lines of cases."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome
from tileyard.base.wording import count_of
from tileyard.show.words import MESSAGE_LENGTH, clean_line, why
from tileyard.verbs.test.result.result import CaseVerdict, SuiteResult
from tileyard.verbs.test.view.markdown import render_page
from tileyard.verbs.test.view.words import (
    Rerun,
    describe_alike,
    failed_attempts,
    group_alike,
    rerun_command,
)

PAGE_BYTES = 1 << 20
"""Size above which GitHub drops the page of a step."""
PER_LEVEL = 10
"""Maximum number of annotations per level that GitHub shows for a step."""
NAMED = 50
"""Number of cases that an annotation of several names."""
_COMPILED = re.compile(r"(?<!\S)(?P<file>[^\s:]+):(?P<line>\d+):")
_CUT = "\n\nThere was no room for the rest of this page.\n"


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
        names = ", ".join(clean_line(one.case) for one in group[:NAMED])
        more = f" and {len(group) - NAMED} more" if len(group) > NAMED else ""
        said = f"{describe_alike(group)}\n{names}{more}"
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
