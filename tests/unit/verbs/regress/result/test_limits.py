"""How much worse a figure may get."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.unit.verbs.regress.plan.sides import built, failed, function, side

import tileyard
from tileyard.artifacts.manifest import Build
from tileyard.base.errors import UsageError
from tileyard.cli.main import main
from tileyard.targets.cuda.needs import KINDS
from tileyard.targets.cuda.sass import KINDS as COUNTED
from tileyard.verbs.regress.plan.static import compare_sides
from tileyard.verbs.regress.result.gate import Gate
from tileyard.verbs.regress.result.limits import parse_limits, require_figures


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


NONE = "--fail-on registers:+5%: the compilers of the target cpu report no figures of a binary"


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
