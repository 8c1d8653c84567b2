"""How much worse a figure may get."""

import pytest
from tests.unit.regress.sides import built, failed, function, side

from tileyard.artifacts.manifest import Build
from tileyard.errors import UsageError
from tileyard.regress.limits import find_regressions, parse_limits
from tileyard.regress.static import Comparison, compare_sides


def compare(base: Build, head: Build) -> Comparison:
    """One round of each."""
    return compare_sides("cuda:sm_80", ("a", "b"), [side(base)], [side(head)])


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
    compared = compare(built(), built("gemm/block=1", function(**figures)))
    regressions = list(find_regressions(compared, parse_limits(limit)))
    assert len(regressions) == is_broken
    assert all(limit in line and "gemm/block=1" in line for line in regressions)


@pytest.mark.parametrize("text", ["missing", "spills:+0"])
def test_a_kernel_that_head_lacks_breaks_any_limit(text: str) -> None:
    """A kernel that only base builds is a regression; one that only head builds is none."""
    limits = parse_limits(text)
    assert list(find_regressions(compare(built("a"), built("b")), limits)) == [
        "a: only base has it"
    ]
    worse, better = compare(built(), failed(message="boom")), compare(failed(), built())
    expected = ["gemm/block=1: head does not build it: boom"]
    assert list(find_regressions(worse, limits)) == expected
    assert list(find_regressions(better, limits)) == []
    assert list(find_regressions(compare(failed(), failed()), limits)) == []


def test_a_file_that_base_could_not_read_is_no_regression() -> None:
    """What failed on base's side alone is no loss; what head alone could not read is one."""
    limits = parse_limits("missing")
    expected = ["a.py: head does not build it: no", "b: only base has it"]
    assert list(find_regressions(compare(failed("a.py"), built("b")), limits)) == []
    assert sorted(find_regressions(compare(built("b"), failed("a.py")), limits)) == expected


@pytest.mark.parametrize(
    ("head_s", "is_broken"), [([9, 1.3, 1.4, 1.5], True), ([9, 1.1, 1.4, 1.5], False)]
)
def test_build_times_break_a_limit_only_in_all_rounds(head_s: list[float], is_broken: bool) -> None:
    """Even the mildest round must be beyond what is allowed."""
    base = [side(built(build_s=1.0)) for _ in head_s]
    head = [side(built(build_s=seconds)) for seconds in head_s]
    compared = compare_sides("cuda:sm_80", ("a", "b"), base, head)
    regressions = list(find_regressions(compared, parse_limits("build:+20%")))
    assert len(regressions) == is_broken


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
