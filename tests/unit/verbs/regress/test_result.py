"""Which rows fail a comparison, what is allowed until a day, and what is said of entries that do nothing."""

import datetime
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.unit.verbs.regress.plan.sides import built, failed, function, side, timed

import tileyard
from tileyard.artifacts.manifest import Build
from tileyard.base.errors import UsageError
from tileyard.cli.main import main
from tileyard.targets.cuda.needs import KINDS
from tileyard.targets.cuda.sass import KINDS as COUNTED
from tileyard.verbs.regress.command.comparing import read_gate
from tileyard.verbs.regress.plan.static import compare_sides
from tileyard.verbs.regress.result import (
    Allowance,
    CaseMargin,
    Change,
    Gate,
    Regression,
    TimedRow,
    describe_gating,
    parse_limits,
    require_figures,
)

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
NONE = "--fail-on registers:+5%: the compilers of the target cpu report no figures of a binary"


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


def compare(base: Sequence[Build], head: Sequence[Build], limits: str) -> list[str]:
    """What fails a comparison of so many rounds with such limits."""
    gate = Gate(margin=0.02, limits=parse_limits(limits), faults="lost" if limits else "none")
    rounds = [[side(build) for build in builds] for builds in (base, head)]
    found = compare_sides("cuda:sm_80", ("a", "b"), *rounds, gate)
    assert found.exit_status == (1 if found.broken or any(row.gates for row in found.rows) else 0)
    lines = [f"{row.case}: {line}" for row in found.rows for line in row.broken]
    kinds = [f"{row.case}: {kind}" for row in found.rows for kind in row.gates]
    return [*lines, *found.broken, *(kind for kind in kinds if "over_limit" not in kind)]


@pytest.mark.parametrize(
    ("limit", "figures", "is_broken"),
    [
        ("registers:+5%", {"registers": 33}, False),  # 3.1 %
        ("registers:+5%", {"registers": 34}, True),  # 6.3 %
        ("registers:+5%", {"registers": 16}, False),
        ("registers:+2", {"registers": 34}, False),
        ("registers:+2", {"registers": 35}, True),
        ("registers:-0", {"registers": 31}, True),
        ("spills:+0", {"spilled_bytes": 4}, True),
        ("spills:+50%", {"spilled_bytes": 4}, True),  # of nothing
        ("occupancy:-10%", {"occupancy": 0.44}, True),
        ("occupancy:-10%", {"occupancy": 0.46}, False),
        ("shared:+0", {"dynamic_shared_bytes": None}, False),  # not known
        ("mix.tensor:-0", {"mix": {"other": 200, "tensor": 50}}, True),
        ("code:+0", {"registers": 99}, False),
    ],
)
def test_limits(limit: str, figures: dict[str, object], is_broken: bool) -> None:
    """A figure may move as far as its limit says, towards that side."""
    regressions = compare([built()], [built("gemm/block=1", function(**figures))], limit)
    assert len(regressions) == is_broken
    assert all(limit in line and "gemm/block=1" in line for line in regressions)


@pytest.mark.parametrize("text", ["missing", "spills:+0"])
def test_a_kernel_that_head_lost_breaks_any_limit(text: str) -> None:
    """What only base has or builds is lost; what is new, or what base does not build either, is not."""
    assert compare([built("a")], [built("b")], text) == ["a: missing"]
    assert compare([built("a")], [failed("a")], text) == ["a: failed"]
    assert compare([failed("a")], [built("a")], text) == []
    assert compare([failed("a")], [failed("a")], text) == []


def test_a_file_that_head_alone_cannot_read_is_lost() -> None:
    """What failed on base's side alone is not a loss."""
    assert compare([failed("a.py")], [built("b")], "missing") == []
    assert compare([built("b")], [failed("a.py")], "missing") == ["a.py: failed", "b: missing"]


def test_without_limits_nothing_fails() -> None:
    """Whatever differs."""
    assert compare([built("a")], [failed("a")], "") == []


@pytest.mark.parametrize(
    ("head_s", "is_broken"), [([9, 1.3, 1.4, 1.5], True), ([9, 1.1, 1.4, 1.5], False)]
)
def test_build_times_break_a_limit_only_in_all_rounds(head_s: list[float], is_broken: bool) -> None:
    """Even the mildest round must be beyond what is allowed."""
    base = [built(build_s=1.0) for _ in head_s]
    head = [built(build_s=seconds) for seconds in head_s]
    assert len(compare(base, head, "build:+20%")) == is_broken


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("registers", "'registers' is not a limit such as"),
        ("registers:5%", "'registers:5%' is not a limit"),
        ("speed:+5%", "there is no figure 'speed'"),
        ("registers:+5%,spills", "'spills' is not a limit"),
    ],
)
def test_what_is_no_limit(text: str, expected: str) -> None:
    """A limit that is not written as one is refused by what is wrong with it."""
    with pytest.raises(UsageError, match=expected):
        parse_limits(text)


def test_limits_are_told_as_they_are_written() -> None:
    """A limit in a message is the one that was given."""
    expected = ["registers:+5%", "occupancy:-2.5", "mix.async copy:+0"]
    assert [str(limit) for limit in parse_limits(",".join(expected))] == expected


@pytest.mark.parametrize(
    "words",
    [
        ("regress", "a", "b", "k.py", "--fail-on", "registers:+5%"),
        ("regress", "a", "b", "k.py", "--fail-on", "registers:+5%", "--target", "cpu:x86-64-v2"),
        ("static", "a", "b", "k.py", "--fail-on", "registers:+5%", "--target", "cpu"),
        ("bisect", "HEAD~1", "HEAD", "k.py", "--fail-on", "registers:+5%"),
        ("regress", "a", "b", "k.py"),
    ],
)
def test_a_limit_on_what_no_build_of_the_target_has_is_refused(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything is built, wherever it is given; it would never fail anything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tileyard.verbs.regress.command.bisect_session.Project", AnyProject)
    if "--fail-on" not in words:
        (tmp_path / "tileyard.toml").write_text('[regress]\nfail-on = "registers:+5%"\n')
    assert main([*words]) == 2
    target = "cpu:x86-64-v2" if "cpu:x86-64-v2" in words else "cpu"
    assert NONE.replace("target cpu", f"target {target}") in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"the target cpu report no figures"):
        tileyard.regress("a", "b", "k.py", fail_on="registers:+5%", home=tmp_path)


class AnyProject:
    """A repository with one commit."""

    @classmethod
    def of(cls, _folder: Path) -> "AnyProject":
        """This one."""
        return cls()

    def list_commits(self, _good: str, _bad: str) -> list[str]:
        """Its commit."""
        return ["c"]


@pytest.mark.parametrize(
    ("target", "limit", "why"),
    [
        ("cuda:sm_90a", "registers:+5%,mix.async copy:+0,occupancy:-1,build:+5%", ""),
        ("cuda:sm_90a", "mix.banana:+0", "builds for cuda:sm_90a have no such figure"),
        ("cpu", "build:+5%", ""),
        ("command", "code:+0", "report no figures"),
        ("anything", "code:+0,mix.banana:+0", ""),
    ],
)
def test_what_a_target_has_is_known_ahead(target: str, limit: str, why: str) -> None:
    """But of a plugin's target; every kind of instructions is one that is counted."""
    assert set(KINDS) == {*COUNTED, "other"}
    if not why:
        require_figures(parse_limits(limit), target)
        return
    with pytest.raises(UsageError, match=why):
        require_figures(parse_limits(limit), target)


def test_a_limit_on_what_no_build_has_is_refused_where_that_is_not_known_ahead() -> None:
    """Neither where a build has it, nor where nothing was built."""
    silent = msgspec.structs.replace(built(), details="")
    dynamic = built("gemm/block=1", function(occupancy=None))
    for builds, limit, why in (
        ([silent], "registers:+0", "report no figures"),
        ([dynamic], "occupancy:-1%", "have no such figure"),
    ):
        with pytest.raises(UsageError, match=why):
            compare(builds, builds, limit)
    for base, limit in (
        (silent, "missing"),
        (dynamic, "mix.banana:+0"),
        (failed(), "registers:+0"),
    ):
        assert not [line for line in compare([base], [base], limit) if "allowed" in line]
    assert compare([built()], [dynamic], "occupancy:-1%") == []
