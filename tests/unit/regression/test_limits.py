"""How much worse a figure may get."""

from collections.abc import Sequence

import pytest
from tests.unit.regression.sides import built, failed, function, side

from tileyard.artifacts.manifest import Build
from tileyard.errors import UsageError
from tileyard.regression.gate import Gate
from tileyard.regression.limits import parse_limits
from tileyard.regression.static import compare_sides


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
