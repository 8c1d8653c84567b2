"""Which rows fail a comparison, what is allowed until a day, and what is said of entries that do nothing."""

import datetime
from pathlib import Path

import msgspec
import pytest
from tests.unit.verbs.regress.plan.sides import timed

from tileyard.base.errors import UsageError
from tileyard.verbs.regress.command.comparing import read_gate
from tileyard.verbs.regress.result.figures import Change
from tileyard.verbs.regress.result.gate import CaseMargin, Gate, describe_gating
from tileyard.verbs.regress.result.limits import parse_limits
from tileyard.verbs.regress.result.timed import Allowance, Regression, TimedRow

TODAY = datetime.date(2026, 11, 23)
ROWS = (
    TimedRow(case="wrong", verdict="failed"),
    TimedRow(case="gone", verdict="missing"),
    timed("slow/a", "regressed", 1.03, 1.04, 1.05),
    timed("slow/b", "regressed", 1.06, 1.07, 1.08),
    TimedRow(case="hit", verdict="not_run"),
    timed("noisy", "inconclusive", 0.9, 1.1, 1.3),
    TimedRow(case="young", verdict="new"),
    timed("fast", "improved", 0.8, 0.85, 0.9),
    timed("even", "equivalent", 0.99, 1, 1.01),
    TimedRow(case="same", verdict="unchanged"),
)
FILE = """
[[allow]]
cases = "slow/*"
verdicts = ["regressed"]
owner = "ana"
reason = "correct at last"
until = 2026-11-23

[[margin]]
cases = "noisy"
percent = 5
"""


def gating(gate: Gate) -> list[str]:
    """The rows that gate."""
    rows, _ = gate.judge(ROWS)
    return [row.case for row in rows if row.gates]


def allow(cases: str, *verdicts: str, until: datetime.date = TODAY) -> Allowance:
    """An entry of an allow-list."""
    fields = {"cases": cases, "verdicts": verdicts, "owner": "ana", "reason": "why", "until": until}
    return msgspec.convert(fields, Allowance)


def test_all_that_is_worse_gates() -> None:
    """Rows that came or went among it; what infrastructure failed ends with another exit status."""
    rows, notes = Gate(margin=0.02).judge(ROWS)
    assert describe_gating(rows) == "1 failed, 1 missing, 2 regressed, 1 new"
    assert notes == ()
    result = Regression(
        run="r", target="cpu", device="", silicon="", base="", head="", margin=0.02, rows=rows
    )
    statuses = [msgspec.structs.replace(result, rows=(row,)).exit_status for row in result.rows]
    assert statuses == [1, 1, 1, 1, 3, 0, 1, 0, 0, 0]


def test_a_limit_lets_slower_kernels_pass_that_are_not_known_to_be_beyond_it() -> None:
    """The lower bound decides, and the report says how many passed so."""
    gate = Gate(margin=0.02, fail_over=0.05)
    assert gating(gate) == ["wrong", "gone", "slow/b", "young"]
    _, notes = gate.judge(ROWS)
    assert notes == ("1 regressed, not known to be beyond 5 %: does not gate",)
    gate = Gate(margin=0.02, fail_over=0.05, margins=(CaseMargin(cases="slow/*", percent=10),))
    rows, _ = gate.judge(ROWS)
    assert [row.margin for row in rows[2:4]] == [0.1, 0.1]


def test_an_allowance_counts_until_its_last_day() -> None:
    """For its verdicts alone; afterwards the row gates again. An entry of no row is named."""
    entries = (
        allow("slow/*", "regressed"),
        allow("gone", "failed"),
        allow("young", "new", until=TODAY - datetime.timedelta(days=1)),
        allow("renamed", "missing"),
    )
    rows, notes = Gate(margin=0.02, allow=entries, today=TODAY).judge(ROWS)
    assert [row.case for row in rows if row.gates] == ["wrong", "gone", "young"]
    assert [row.allowed for row in rows[2:4]] == [(entries[0],)] * 2
    assert notes == (
        "the allowance of young ended on 2026-11-22: 1 case gates again (owner ana: why)",
        "allow: renamed matches no case",
    )


def test_the_file_has_allowances_and_margins(tmp_path: Path) -> None:
    """In the shape of a suite's quarantine."""
    path = tmp_path / "allow.toml"
    path.write_text(FILE)
    gate = read_gate(path, Gate(margin=0.02, today=TODAY))
    assert gating(gate) == ["wrong", "gone", "young"]
    assert gate.margin_of("noisy") == 0.05


def test_a_figure_beyond_its_limit_gates_whatever_the_time_is() -> None:
    """An allowance of the verdict is not one of the figures."""
    changes = (Change(metric="registers", base=32, head=40),)
    even = timed("even", "equivalent", 0.99, 1.0, 1.01)
    slow = timed("slow", "regressed", 1.03, 1.04, 1.05)
    rows = [msgspec.structs.replace(row, changes=changes) for row in (even, slow)]
    limits = parse_limits("registers:+5%,spills:+0")
    gate = Gate(margin=0.02, limits=limits, allow=(allow("slow", "regressed"),), today=TODAY)
    judged, _ = gate.judge(rows)
    assert [row.gates for row in judged] == [("over_limit",), ("over_limit",)]
    assert judged[0].broken == ("registers 32 -> 40, allowed registers:+5%",)
    assert describe_gating(judged) == "2 over_limit"
    gate = Gate(margin=0.02, limits=limits, allow=(allow("*", "over_limit"),), today=TODAY)
    assert [row.gates for row in gate.judge(rows)[0]] == [(), ("regressed",)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("owner", "ownr", ":5: allow[0].ownr: unknown key"),
        ('"regressed"', '"slow"', ":4: allow[0].verdicts[0]: invalid value 'slow'"),
        ("until = 2026-11-23", "", ":2: allow[0]: misses the key `until`"),
        ("2026-11-23", '"soon"', ":7: allow[0].until: must be a date such as 2026-12-31"),
        ("percent = 5", "percent = 0", ":11: margin[0].percent: must be a number > 0"),
        ("[[margin]]", "[[margins]]", ":9: margins: unknown key"),
        ("[[allow]]", "[[allow", "is not valid TOML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """With its line and key."""
    path = tmp_path / "allow.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(UsageError) as raised:
        read_gate(path, Gate(margin=0.02, today=TODAY))
    assert raised.value.message.startswith(str(path))
    assert expected in raised.value.message


def test_a_limit_within_the_margin_is_refused() -> None:
    """What lies within the margin cannot be told from noise."""
    with pytest.raises(UsageError, match="less than the margin of 2 %"):
        read_gate(None, Gate(margin=0.02, fail_over=0.01))
    with pytest.raises(UsageError, match="takes --static --rebuilds 3"):
        read_gate(None, Gate(margin=0.02, limits=parse_limits("build:+5%")))
