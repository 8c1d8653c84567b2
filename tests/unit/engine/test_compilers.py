"""How much memory compile workers may take."""

import pytest

from tileyard.engine.compilers import LEAST_MEMORY_BYTES, choose_memory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("host_bytes", "workers", "expected"),
    [
        (100 * GIB, 4, 20 * GIB),
        (100 * GIB, 64, LEAST_MEMORY_BYTES),
        (2 * GIB, 1, LEAST_MEMORY_BYTES),
        (100 * GIB, 0, 80 * GIB),
    ],
)
def test_workers_share_the_memory_of_a_host(host_bytes: int, workers: int, expected: int) -> None:
    """Four fifths are shared out equally, and none gets less than a compiler needs."""
    assert choose_memory(host_bytes, workers) == expected
