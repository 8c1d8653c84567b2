"""The sizes that a check chooses for real kernels, and what only these show."""

from functools import cache
from pathlib import Path

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.clock import Clock
from tileyard.base.errors import UnsupportedError, UsageError
from tileyard.frontend.discover import find_kernels, import_file
from tileyard.frontend.found import Found
from tileyard.workers.protocol import CheckSync, SyncChecked
from tileyard.workers.sync_sizes import BUDGET_S, check_sizes

SIZES = Path(__file__).parent / "sizes.py"

pytestmark = pytest.mark.slow


class Slow(Clock):
    """Each look at the clock is half a budget later."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        """Half a budget later."""
        self.now_s += BUDGET_S / 2
        return self.now_s


@cache
def kernels() -> dict[str, Found]:
    """The kernels of ``sizes.py``."""
    return find_kernels(import_file(SIZES))


def check(tmp_path: Path, kernel: str, clock: Clock | None = None, **arguments: int) -> SyncChecked:
    """Check a kernel of ``sizes.py``."""
    found = kernels()[kernel]
    request = CheckSync(kernel=kernel, arguments=dict(arguments), config={})
    return check_sizes(found, request, ObjectStore(tmp_path), clock)


def line_of(words: str) -> int:
    """The first line of ``sizes.py`` with these words."""
    lines = SIZES.read_text("utf-8").splitlines()
    return 1 + next(number for number, line in enumerate(lines) if words in line)


def test_a_mistake_of_the_eighth_iteration_is_found(tmp_path: Path) -> None:
    """A loop of three stages also runs fourteen times; the finding has the size that does."""
    checked = check(tmp_path, "late_parity", N=64)
    assert {finding.instance for finding in checked.findings} == {"N=224"}
    assert "read before arrival" in {finding.kind for finding in checked.findings}
    assert set(checked.trips.values()) == {(0, 1, 2, 3, 4, 5, 14)}


def test_a_loop_that_repeats_is_checked_for_every_trip_count(tmp_path: Path) -> None:
    """Three stages and two parities make a period of six; smaller trip counts and each remainder run."""
    checked = check(tmp_path, "in_step", N=64)
    assert checked.findings == ()
    assert set(checked.periods.values()) == {6}
    assert checked.periods.keys() == checked.trips.keys()
    assert set(checked.trips.values()) == {(*range(13), 14)}


def test_a_loop_is_claimed_only_where_all_that_it_takes_was_run(tmp_path: Path) -> None:
    """Not where there is no time for it."""
    checked = check(tmp_path, "in_step", Slow(), N=64)
    assert checked.findings == ()
    assert checked.periods == {}


def test_a_barrier_too_many_is_found_in_the_smallest_instance(tmp_path: Path) -> None:
    """In the fourth iteration, whatever the size given."""
    checked = check(tmp_path, "fourth_barrier", N=1 << 20)
    assert "out of bounds" in {finding.kind for finding in checked.findings}
    assert {finding.instance for finding in checked.findings} == {"N=64"}


def test_sizes_that_are_missing_are_guessed(tmp_path: Path) -> None:
    """Also where they have to be equal; what the kernel refuses is named."""
    checked = check(tmp_path, "square")
    assert checked.instances == tuple({"M": n, "N": n} for n in (32, 96))
    assert checked.unchecked == ("1 choice of sizes that the kernel refuses: M=16, N=16",)


def test_types_and_sizes_are_guessed_together(tmp_path: Path) -> None:
    """Types by their names; of sizes that leave no block where they are equal, one is 1."""
    checked = check(tmp_path, "grouped")
    assert checked.instances == ({"heads": 32},)
    assert (checked.blocks, checked.grid) == (2, 2)


def test_a_size_that_nothing_has_is_guessed_in_vain(tmp_path: Path) -> None:
    """It is one of the kernel's names; to give it is a mistake."""
    assert check(tmp_path, "spared").blocks > 0
    with pytest.raises(UsageError, match="spared has no argument 'M'"):
        check(tmp_path, "spared", N=64, M=3)


def test_expressions_that_are_too_deep_are_refused(tmp_path: Path) -> None:
    """In one line, and not by an error of Python's."""
    with pytest.raises(UnsupportedError, match="deep has expressions nested too deeply"):
        check(tmp_path, "deep", N=64)


def test_a_branch_that_never_runs_is_named(tmp_path: Path) -> None:
    """The sizes and numbers of a compiled kernel need no further elaboration."""
    checked = check(tmp_path, "dynamic", N=64, twice=1)
    line = line_of("if twice")
    (said,) = checked.unchecked
    assert said == f"{SIZES}:{line}: the branch of line {line} was never taken"
    assert next(iter(checked.trips.values())) == (1, 2, 3, 4)
    assert check(tmp_path, "dynamic", N=64, twice=101).unchecked == ()


def test_the_reference_says_which_sizes_there_are(tmp_path: Path) -> None:
    """Where it raises there is no instance, and the kernel gets no verdict."""
    checked = check(tmp_path, "declared", N=4096)
    assert checked.findings == ()
    assert [one["N"] for one in checked.instances] == [48, 64, 160]
    (said,) = checked.unchecked
    assert said.startswith("3 choices of sizes that the kernel refuses: N=0; N=16; N=32: ")
    assert said.endswith("reference of declared: AssertionError: three tiles at least")


def test_what_there_is_no_time_for_is_named(tmp_path: Path) -> None:
    """The cheapest instance is checked in any case."""
    checked = check(tmp_path, "late_parity", Slow(), N=64)
    assert checked.instances == ({"N": 0},)
    assert checked.unchecked[-1].startswith("not within 60 s: N=16; N=32; ")


def check_unasked(tmp_path: Path, kernel: str, **arguments: int) -> SyncChecked:
    """A check of a kernel of ``sizes.py`` that nobody asked for."""
    request = CheckSync(
        kernel=kernel, arguments=dict(arguments), config={}, limit_s=30.0, is_unasked=True
    )
    return check_sizes(kernels()[kernel], request, ObjectStore(tmp_path))


@pytest.mark.parametrize(
    ("kernel", "arguments", "expected"),
    [
        ("any_blocks", {}, ["uninitialised"]),
        ("whole_blocks", {}, []),
        ("large_only", {}, ["uninitialised"]),
        ("old_output", {}, ["uninitialised"]),
        ("half_written", {}, []),
        ("compared", {}, ["never written"]),
        ("neighbours_of_fragment", {}, ["race"]),
        ("sums_of_threads", {}, []),
        ("sums_of_threads", {"shared": 2}, ["race"]),
        ("shifted", {}, ["race"]),
        ("from_zero", {}, []),
        ("atomic_stores", {}, []),
        ("atomic_stores", {"adds": True}, ["uninitialised"]),
        ("contributions", {}, []),
        ("cleared_by_first_block", {}, ["race"]),
        ("read_by_last_block", {}, ["race"]),
        ("sums_of_rows", {}, ["race"]),
        ("sums_of_rows", {"shared": 1}, []),
        ("handed_on", {}, ["race"]),
        ("of_one_iteration", {}, []),
        ("wrong_in_one_block", {}, ["race"]),
    ],
)
def test_a_check_that_nobody_asked_for(
    tmp_path: Path, kernel: str, arguments: dict[str, int], expected: list[str]
) -> None:
    """It finds undefined accesses at sizes of ``where``, with no reference; compared data is written."""
    checked = check_unasked(tmp_path, kernel, N=1 << 12, **arguments)
    assert [finding.kind for finding in checked.findings] == expected
    assert checked.blocks > 0


def test_what_nobody_asked_for_is_answered_also_if_it_cannot_be(tmp_path: Path) -> None:
    """With the reason, if a check that was asked for raises it, as for tensors that are too large."""
    checked = check_unasked(tmp_path, "large_only", N=1 << 25)
    assert (checked.blocks, checked.findings) == (0, ())
    assert "its tensors have 67,108,864 elements" in checked.unchecked[0]
    with pytest.raises(UsageError):
        check(tmp_path, "old_output", N="many")  # type: ignore[arg-type]
    reason = check_unasked(tmp_path, "old_output", N="many").unchecked  # type: ignore[arg-type]
    assert reason


LONG = """
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def halved(N=256, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            tile = T.alloc_fragment((block,), "float32")
            T.copy(A[bx * block], tile)
            {loop}
            T.copy(tile, B[bx * block])

    return main
"""
HALVED = """
                for i in T.Parallel(block):
                    tile[i] = tile[i] * 0.5"""
LOOPS = {
    "a nest in a loop": f"while tile[0] > -1.0:{HALVED}",
    "conditions only": """while tile[0] > -1.0:
                if tile[1] > 1000.0:
                    tile[1] = 0.0""",
    "a loop in a nest": """for i in T.Parallel(block):
                for k in T.serial(1000000000):
                    tile[i] = tile[i] * 0.5""",
    "a loop without end in a nest": """for i in T.Parallel(block):
                while tile[i] > -1.0:
                    tile[i] = tile[i] * 0.5""",
    "elements": """for k in T.serial(1000000000):
                tile[k % block] = tile[k % block] * 0.5""",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_the_limit_holds_within_loops(tmp_path: Path, loop: str) -> None:
    """What takes longer is not checked, whatever its loops contain."""
    file = tmp_path / "long.py"
    file.write_text(LONG.format(loop=LOOPS[loop]), encoding="utf-8")
    request = CheckSync(kernel="halved", arguments={}, config={}, limit_s=0.1, is_unasked=True)
    checked = check_sizes(find_kernels(import_file(file))["halved"], request, ObjectStore(tmp_path))
    assert (checked.findings, checked.blocks) == ((), 0)
    assert any(one.startswith("not within 0.1 s: ") for one in checked.unchecked)


def test_a_kernel_has_its_own_sizes_however_late_it_is(tmp_path: Path) -> None:
    """It is elaborated once for them, given or not; the answer says that time is short for other sizes."""
    file = tmp_path / "late.py"
    file.write_text(LONG.format(loop=LOOPS["elements"]), encoding="utf-8")
    found = find_kernels(import_file(file))["halved"]
    request = CheckSync(kernel="halved", arguments={}, config={}, limit_s=0.1, is_unasked=True)
    checked = check_sizes(found, request, ObjectStore(tmp_path), Slow())
    assert any(one.startswith("not within 0.1 s: ") for one in checked.unchecked), checked.unchecked
