"""The findings of ``tileyard check`` as SARIF 2.1.0 for code scanning: one run, one rule per kind."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from tileyard.base.model import SourceLine
from tileyard.sync.findings import MEANINGS, Finding
from tileyard.sync.suppressions import Suppressed
from tileyard.verbs.check.view.sync import SyncReport, name_kind
from tileyard.workers.program_replies import SyncChecked

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_RULES = list(MEANINGS)


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
