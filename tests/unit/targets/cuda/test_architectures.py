"""Architectures by name, where their code runs, and how much of a multiprocessor a kernel fills."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.targets.cuda.architectures import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    Architecture,
    find_excess,
    find_occupancy,
    parse_architecture,
)
from tileyard.targets.own_sources import Excess


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm_80", Architecture(major=8, minor=0)),
        ("sm_86", Architecture(major=8, minor=6)),
        ("sm_90a", Architecture(major=9, minor=0, suffix="a")),
        ("sm_103f", Architecture(major=10, minor=3, suffix="f")),
        ("sm_120", Architecture(major=12, minor=0)),
    ],
)
def test_names_are_nvidias(name: str, expected: Architecture) -> None:
    """The last digit is the minor version; the name is read back as it is written."""
    assert parse_architecture(name) == expected
    assert expected.name == name


@pytest.mark.parametrize(
    "name", ["sm_9", "sm_90x", "sm_", "90a", "compute_90", "sm_80a", "sm_90f", "sm_090", " sm_80"]
)
def test_what_is_no_architecture_is_refused(name: str) -> None:
    """A name that none has is refused with how they are written."""
    expected = f"there is no architecture {name!r} (it is written sm_80, sm_90a, sm_100a, ...)"
    with pytest.raises(UsageError) as caught:
        parse_architecture(name)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("name", "runs", "runs_not"),
    [
        ("sm_80", [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0)]),
        ("sm_86", [(8, 6), (8, 9)], [(8, 0)]),
        ("sm_90a", [(9, 0)], [(9, 1), (10, 0)]),
        ("sm_100f", [(10, 0), (10, 3)], [(11, 0), (12, 0)]),
    ],
)
def test_code_runs_on_later_minor_versions_unless_it_is_for_one(
    name: str, runs: list[tuple[int, int]], runs_not: list[tuple[int, int]]
) -> None:
    """Code with ``a`` is for one capability alone; other code never leaves its major version."""
    architecture = parse_architecture(name)
    expected = [True] * len(runs) + [False] * len(runs_not)
    assert [architecture.fits(one) for one in runs + runs_not] == expected


@pytest.mark.parametrize(
    ("architecture", "threads", "registers", "shared_bytes", "expected"),
    [
        # 65,536 registers hold 8 blocks of 128 x 64: 32 of 64 warps.
        ("sm_80", 128, 64, 0, 32 / 64),
        ("sm_80", 128, 32, 0, 1.0),
        # 33 registers are given as 40: 12 warps in each of 4 parts.
        ("sm_80", 128, 33, 0, 48 / 64),
        # 32 blocks at most, of a warp each.
        ("sm_80", 32, 16, 0, 32 / 64),
        # 164 KiB hold one block of 100 KiB and the system's 1 KiB.
        ("sm_80", 128, 32, 100 << 10, 4 / 64),
        ("sm_80", 128, 32, 81 << 10, 8 / 64),
        ("sm_80", 128, 32, (81 << 10) + 1, 4 / 64),
        # 48 warps, of which a block of 1,024 threads fills 32.
        ("sm_86", 1024, 32, 0, 32 / 48),
        # 168 registers: 3 warps in each of 4 parts, so one block of 8 warps.
        ("sm_90a", 256, 168, 0, 8 / 64),
        ("sm_90a", 384, 168, 200 << 10, 12 / 64),
        # 33 threads take two warps.
        ("sm_90a", 33, 32, 0, 1.0),
        # 255 registers are given as 256: not even one block of 32 warps fits.
        ("sm_80", 1024, 255, 0, 0.0),
        ("sm_90a", 128, 32, 300 << 10, 0.0),
    ],
)
def test_occupancy_is_that_of_nvidias_calculator(
    architecture: str, threads: int, registers: int, shared_bytes: int, expected: float
) -> None:
    """The scarcest of warps, blocks, registers and shared memory decides."""
    parsed = parse_architecture(architecture)
    assert find_occupancy(parsed, threads, registers, shared_bytes) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("architecture", "threads", "shared_kib", "registers", "limit", "message"),
    [
        ("sm_80", 2048, 0, 0, "threads", "needs 2048 threads per block; sm_80 allows 1024"),
        (
            *("sm_90a", 128, 240, 32, "shared memory"),
            "needs 240 KiB of shared memory per block; sm_90a allows 227 KiB",
        ),
        (
            *("sm_90a", 1024, 0, 255, "registers"),
            "needs 255 registers x 1024 threads = 261120 registers per block, in units of 256 per warp; "
            "sm_90a has 65536",
        ),
        ("sm_90a", 1024, 227, 64, "", ""),
        # Less than 65,536, but 72 registers for 32 warps are more.
        (
            *("sm_90a", 928, 0, 65, "registers"),
            "needs 65 registers x 928 threads = 60320 registers per block, in units of 256 per warp; "
            "sm_90a has 65536",
        ),
    ],
)
def test_what_no_multiprocessor_has_room_for_says_what_it_needs(  # noqa: PLR0913 - the cases' values
    architecture: str, threads: int, shared_kib: int, registers: int, limit: str, message: str
) -> None:
    """The scarce resource, what is needed, and what there is."""
    found = find_excess(parse_architecture(architecture), threads, shared_kib << 10, registers)
    assert found == (Excess(limit=limit, message=message) if limit else None)


@pytest.mark.parametrize("name", ["sm_75", "sm_90a"])
def test_a_block_has_room_if_registers_in_their_units_suffice(name: str) -> None:
    """In units of eight per thread, and of one warp in each of four partitions; then occupancy is above 0."""
    architecture = parse_architecture(name)
    for threads in range(32, BLOCK_THREADS + 1, 32):
        for registers in range(16, 256):
            needed = -(-registers // 8) * 8 * -(-threads // 128) * 128
            found = find_excess(architecture, threads, 0, registers)
            assert (found is not None) == (needed > 65_536), (threads, registers)


def test_of_unknown_architectures_only_the_limit_of_threads_is_known() -> None:
    """What may fit is built and run."""
    unknown = Architecture(major=99, minor=0)
    assert find_excess(unknown, BLOCK_THREADS, 1 << 30, 255) is None
    assert find_excess(unknown, BLOCK_THREADS + 1, 0, 0) is not None


@pytest.mark.parametrize(
    ("architecture", "kib"),
    [
        ("sm_75", 64),
        ("sm_80", 163),
        ("sm_86", 99),
        ("sm_90a", 227),
        ("sm_100a", 227),
        ("sm_120", 99),
    ],
)
def test_a_block_may_have_so_much_shared_memory(architecture: str, kib: int) -> None:
    """NVIDIA's "maximum amount of shared memory per thread block"."""
    assert parse_architecture(architecture).block_shared_bytes == kib << 10


def test_occupancy_is_unknown_where_the_multiprocessor_is() -> None:
    """Nothing is said of an architecture that the table lacks, nor of a block without threads."""
    unknown = Architecture(major=99, minor=0)
    expected = None
    assert (unknown.major, unknown.minor) not in MULTIPROCESSORS
    assert find_occupancy(unknown, 128, 32, 0) is expected
    assert find_occupancy(parse_architecture("sm_80"), 0, 32, 0) is expected
