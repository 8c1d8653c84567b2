"""What a check found: as lines, and as SARIF."""

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
from tests.conftest import ROOT

from tileyard.base.model import Diagnostic, SourceLine
from tileyard.ir.hazard_kinds import HazardKind
from tileyard.sync.findings import MEANINGS, Allowed, Finding, FindingKind, Suppressed
from tileyard.verbs.check.view.findings import (
    NotChecked,
    SyncReport,
    describe_check,
    describe_sarif,
)
from tileyard.workers.protocol import SyncChecked

PLACE = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "message": {"type": "object", "required": ["text"]},
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation", "region"],
            "additionalProperties": False,
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    "properties": {"uri": {"type": "string", "pattern": "^[^ \\\\]+$"}},
                },
                "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}},
            },
        },
    },
}
NOTICE = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": {"type": "object", "required": ["text"]},
        "locations": {"type": "array", "items": PLACE},
    },
}
SARIF: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "$schema": {"type": "string", "format": "uri"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "required": ["name"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {"required": ["id"]},
                                    }
                                },
                            }
                        },
                    },
                    "invocations": {
                        "items": {
                            "required": ["executionSuccessful"],
                            "properties": {
                                "toolExecutionNotifications": {"type": "array", "items": NOTICE}
                            },
                        }
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "properties": {
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "locations": {"type": "array", "items": PLACE},
                                "relatedLocations": {"type": "array", "items": PLACE},
                                "suppressions": {
                                    "type": "array",
                                    "items": {
                                        "required": ["kind"],
                                        "properties": {
                                            "kind": {"enum": ["inSource", "external"]},
                                            "location": PLACE,
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
"""What SARIF 2.1.0 requires of the parts that are used."""


def at(line: int, file: str = "/w/my kernels/k.py") -> SourceLine:
    """A line of the file."""
    return SourceLine(file=file, line=line)


RACE = Finding(kind="race", message="a is raced", fix="order it", buffer="a", block=(1, 0))
RACE = msgspec.structs.replace(RACE, access=at(7), other=at(5), wait=at(6))
STUCK = Finding(kind="deadlock", message="stuck", fix="", buffer="b", access=at(9))
STUCK = msgspec.structs.replace(STUCK, waiting=(at(9), at(11, "/elsewhere/m.py")))
UNUSED = Allowed(kind="bytes", reason="r", comment=at(20), first=20, last=20)
REPORT = SyncReport(
    file="k.py",
    kernels=(
        SyncChecked(
            kernel="one",
            config={"stages": 2},
            blocks=4,
            grid=9,
            findings=(RACE,),
            unchecked=(),
            suppressed=(Suppressed(finding=STUCK, reason="meant so", comment=at(10)),),
            unused=(UNUSED, Allowed(kind="deadlock", reason="r", comment=at(10), first=9, last=9)),
        ),
        SyncChecked(
            kernel="two",
            config={},
            blocks=0,
            grid=0,
            findings=(),
            unchecked=("k.py:30: x",),
            unused=(UNUSED,),
            notes=(Diagnostic(message="it wraps", where=at(40)),),
        ),
    ),
    not_checked=(NotChecked(kernel="three", reason="three needs a value for N"),),
    sizes={"one": 16, "two": 1},
)


def test_findings_come_first_and_what_is_suppressed_last() -> None:
    """Each kernel has a line, and a comment that another kernel needs is used."""
    assert list(describe_check(REPORT)) == [
        "/w/my kernels/k.py:7: a is raced (block 1, 0) [race]\n    order it",
        "not checked: k.py:30: x",
        "note: /w/my kernels/k.py:40: it wraps",
        "one stages=2: 1 mistake in 4 of 9 blocks, 1 suppressed",
        "two: nothing was checked",
        "one: checked 1 of 16 configs of the space; --all-configs checks them all",
        "not checked: three needs a value for N",
        "suppressed: /w/my kernels/k.py:9: stuck\n    allowed by line 10: meant so",
        "unused: /w/my kernels/k.py:20: allow(bytes) suppresses nothing",
    ]


def test_a_mistake_outweighs_a_kernel_that_could_not_be_checked() -> None:
    """Which outweighs kernels that are well."""
    fine = msgspec.structs.replace(REPORT, kernels=REPORT.kernels[1:])
    done = msgspec.structs.replace(fine, not_checked=())
    assert [each.exit_status for each in (REPORT, fine, done)] == [1, 2, 0]


def test_every_kind_has_a_sentence() -> None:
    """Which is the description of its rule."""
    kinds = {*get_args(HazardKind)}.union(*map(get_args, get_args(FindingKind)))
    assert set(MEANINGS) == {kind for kind in kinds if isinstance(kind, str)}
    assert all(text.endswith(".") and text.count(". ") == 0 for text in MEANINGS.values())


def test_sarif_is_what_the_standard_asks_for() -> None:
    """All lines of a finding are there, relative to the folder where they can be."""
    log = json.loads(json.dumps(describe_sarif(REPORT, Path("/w"), "1")))
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    race, stuck = run["results"]
    assert all(rules[each["ruleIndex"]]["id"] == each["ruleId"] for each in run["results"])
    assert next(rule["id"] for rule in rules) == "read-before-arrival"
    (place,) = race["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20kernels/k.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 7},
    }
    texts = [(each["message"]["text"], each["id"]) for each in race["relatedLocations"]]
    assert texts == [("the other side", 1), ("the wait that did not help", 2)]
    waits = [each["physicalLocation"] for each in stuck["relatedLocations"]]
    assert [each["region"]["startLine"] for each in waits] == [9, 11]
    assert waits[1]["artifactLocation"] == {"uri": "file:///elsewhere/m.py"}
    assert "suppressions" not in race
    (allowed,) = stuck["suppressions"]
    assert (allowed["kind"], allowed["justification"]) == ("inSource", "meant so")
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"]
    assert len(invocation["toolExecutionNotifications"]) == 4


def test_the_document_is_what_the_schema_says() -> None:
    """And the schema is that of the code: ``python tools/schema.py check`` writes it."""
    schema = json.loads((ROOT / "docs" / "reference" / "check.schema.json").read_text())
    jsonschema.validate(json.loads(msgspec.json.encode(REPORT)), schema)
    found = {key: schema[key] for key in schema if key != "$schema"}
    assert found == json.loads(json.dumps(msgspec.json.schema(SyncReport)))


def test_the_page_has_all_kinds() -> None:
    """With their sentences, in their order."""
    page = (ROOT / "docs" / "how-to" / "check-synchronization.md").read_text(encoding="utf-8")
    table = page.partition("The kinds:")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{kind}` | {text} |" for kind, text in MEANINGS.items()]
