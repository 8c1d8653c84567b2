"""Which sizes a check chooses: plain functions stand for kernels."""

from collections.abc import Callable

import pytest

from tileyard.sync.shapes import MOST_MEASURED, Loop, Measured, Plan, plan_instances

Kernel = Callable[[dict[str, int]], Measured | None]


def matmul(stages: int = 2, divides: int = 1) -> Kernel:
    """Tiles of 16 x 16 and a loop over K; K has to be a multiple of ``divides`` tiles."""

    def measure(sizes: dict[str, int]) -> Measured | None:
        m, n, k = (sizes[name] for name in "MNK")
        if k % (16 * divides):
            return None
        grid = (-(-n // 16), -(-m // 16))
        loop = Loop(line=9, trips=k // 16, stages=stages)
        return Measured(loops=(loop,), grid=grid, cost=grid[0] * grid[1] * (1 + k // 16))

    return measure


def trips_of(plan: Plan, measure: Kernel) -> set[int | None]:
    """The trip counts of all loops of all instances."""
    found = [measure(one.sizes) for one in plan.instances]
    return {loop.trips for one in found if one is not None for loop in one.loops}


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("size", [64, 100 * 16, 4096])
def test_a_loop_runs_each_small_number_of_times(stages: int, size: int) -> None:
    """From none to two more than the stages, and once three times as many, whatever the sizes given."""
    measure = matmul(stages)
    plan = plan_instances({"M": size, "N": size, "K": size}, measure, are_given=False)
    assert trips_of(plan, measure) == {*range(stages + 3), 4 * stages + 2}
    assert not plan.is_cut


def test_there_are_two_blocks_of_each_dimension_and_ragged_edges() -> None:
    """The last tile is partly outside, of one dimension after the other."""
    plan = plan_instances({"M": 1024, "N": 1024, "K": 1024}, matmul(), are_given=False)
    assert {(one.sizes["M"], one.sizes["N"]) for one in plan.instances} == {
        (32, 32),
        (24, 32),
        (32, 24),
    }


def test_the_cheapest_instance_is_the_first() -> None:
    """So that a mistake is seen in the smallest one that shows it."""
    plan = plan_instances({"M": 64, "N": 64, "K": 64}, matmul())
    costs = [one.cost for one in plan.instances]
    assert costs == sorted(costs)
    assert plan.instances[0].text == "M=32, N=32, K=0"


def test_what_was_given_is_checked_unless_it_is_large() -> None:
    """And what nobody has asked for is not."""
    small, large = {"M": 48, "N": 48, "K": 160}, {"M": 4096, "N": 4096, "K": 4096}
    assert small in [one.sizes for one in plan_instances(small, matmul()).instances]
    assert large not in [one.sizes for one in plan_instances(large, matmul()).instances]
    guessed = plan_instances(small, matmul(), are_given=False)
    assert small not in [one.sizes for one in guessed.instances]


def test_what_the_kernel_refuses_is_counted() -> None:
    """Each trip count that it does not take; the others are checked."""
    measure = matmul(divides=2)
    plan = plan_instances({"M": 64, "N": 64, "K": 64}, measure, are_given=False)
    assert [one.text for one in plan.refused] == ["M=32, N=32, K=16", "M=32, N=32, K=48"]
    assert trips_of(plan, measure) == {0, 2, 4, 10}


def test_a_parameter_of_the_kernel_keeps_its_value() -> None:
    """A size of tiles also changes trip counts, and is not for a check to choose."""

    def measure(sizes: dict[str, int]) -> Measured:
        block = sizes["block"]
        loop = Loop(line=1, trips=sizes["N"] // block, stages=1)
        rows = Loop(line=2, trips=block, stages=1)
        return Measured(loops=(loop, rows), grid=(1,), tiles=((block,),))

    plan = plan_instances({"N": 256, "block": 32, "flag": 1}, measure, are_given=False)
    assert {one.sizes["block"] for one in plan.instances} == {32}
    assert plan.instances[0].shown.keys() == {"N"}


def test_sizes_that_only_change_together_do() -> None:
    """As those of a square."""

    def measure(sizes: dict[str, int]) -> Measured | None:
        if sizes["M"] != sizes["N"]:
            return None
        loop = Loop(line=1, trips=sizes["M"] // 16, stages=1)
        return Measured(loops=(loop,), grid=(1,))

    plan = plan_instances({"M": 64, "N": 64}, measure, are_given=False)
    assert sorted(one.sizes["M"] for one in plan.instances) == [0, 16, 32, 48, 96]
    assert all(one.sizes["M"] == one.sizes["N"] for one in plan.instances)


def test_one_size_can_drive_a_loop_and_the_grid() -> None:
    """An instance without a block shows nothing, and is left out."""

    def measure(sizes: dict[str, int]) -> Measured:
        assert sizes["length"] >= 0
        count = -(-sizes["length"] // 16)
        return Measured(loops=(Loop(line=1, trips=count, stages=2),), grid=(count,))

    for length in (1000, 1024):
        plan = plan_instances({"length": length}, measure, are_given=False)
        assert {1, 2, 3, 4, 10} == trips_of(plan, measure)


def test_a_trip_count_with_a_limit_is_found_below_it() -> None:
    """A loop over a window runs no more often for larger sizes."""

    def measure(sizes: dict[str, int]) -> Measured:
        count = min(4, -(-sizes["N"] // 16))
        return Measured(loops=(Loop(line=1, trips=count, stages=2),), grid=(-(-sizes["N"] // 64),))

    plan = plan_instances({"N": 64}, measure, are_given=False)
    assert trips_of(plan, measure) == {1, 2, 3, 4}


def test_a_kernel_without_sizes_has_one_instance() -> None:
    """And one whose loop depends on data likewise."""
    one = Measured(loops=(Loop(line=1, trips=None),), grid=(1,))
    plan = plan_instances({"seed": 7}, lambda _: one)
    assert [instance.text for instance in plan.instances] == [""]


def test_the_number_of_elaborations_is_limited() -> None:
    """The report names what could not be checked."""
    asked: list[dict[str, int]] = []

    def measure(sizes: dict[str, int]) -> Measured:
        asked.append(sizes)
        loops = tuple(
            Loop(line=number, trips=value // 16, stages=7)
            for number, value in enumerate(sizes.values())
        )
        return Measured(loops=loops, grid=(1,))

    plan = plan_instances({f"n{number}": 64 for number in range(9)}, measure)
    assert len(asked) == MOST_MEASURED
    assert plan.is_cut
    assert plan.refused == ()


def test_further_trip_counts_have_sizes() -> None:
    """Those that the kernel takes, however many have been measured for the plan."""

    def measure(sizes: dict[str, int]) -> Measured | None:
        loop = Loop(line=1, trips=sizes["N"] // 16, stages=2)
        return Measured(loops=(loop,), grid=(1,)) if sizes["N"] // 16 != 7 else None

    (stretch,) = plan_instances({"N": 64}, measure, are_given=False).stretches
    assert stretch.trips == (0, 1, 2, 3, 4, 10)
    found = [stretch.at(trips) for trips in (6, 7, *range(8, 80))]
    assert [one and one.sizes["N"] for one in found] == [96, None, *range(128, 1280, 16)]
