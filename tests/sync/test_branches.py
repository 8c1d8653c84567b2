"""The barrier that TileLang puts between two branches on the thread is known where it is, and only there."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.differential.conftest import load_module, lower_prim_func

from tileyard.frontend.discover import find_kernels
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.nodes import Sync
from tileyard.ir.walk import walk
from tileyard.sync.blocks import check_program
from tileyard.sync.findings import Finding

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

__all__ = ["lower_prim_func"]

pytestmark = pytest.mark.slow

FILE = Path(__file__).parent / "branches.py"
ROWS = 8
BETWEEN = re.compile(r"__syncthreads\(\);\n  if \(128 <= ")
"""In front of the second branch."""

FOUND: dict[str, set[str]] = {
    "pipelined": {"deadlock"},
    "said_too_early": set(),
    "of_one_branch": {"race", "overwritten before release", "uninitialised"},
    "apart": set(),
    "both_write": {"race"},
    "through_global": {"race", "overwritten before release"},
    "with_own_barrier": {"race", "overwritten before release", "uninitialised"},
}
"""The kinds of what is found in each kernel."""


@pytest.fixture(scope="session")
def branches() -> ModuleType:
    """The kernels."""
    return load_module(FILE)


def check(lowered: "Lowered", rows: int = ROWS) -> list[Finding]:
    """All findings."""
    arrays = [
        np.arange(rows * 128, dtype=np.float32).reshape(rows, 128),
        np.zeros((rows, 128), "f4"),
    ]
    return list(check_program(lowered.written, lowered.written_lines, arrays).findings)


def has_given(lowered: "Lowered") -> bool:
    """Whether a barrier is in the Program that is not in the kernel."""
    return any(isinstance(stmt, Sync) and stmt.given for stmt in walk(lowered.written.body))


@pytest.mark.parametrize("kernel", FOUND)
def test_barriers_are_known_where_tilelang_puts_them(
    branches: ModuleType, lower_prim_func: Callable[..., "Lowered"], kernel: str
) -> None:
    """As the CUDA that it generates has them, and what is found agrees with that."""
    tilelang = importlib.import_module("tilelang")
    func = getattr(branches, kernel).get_tir(N=ROWS)
    target = tilelang.tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    with target:
        made = tilelang.lower(func, target=target, enable_device_compile=False)
    lowered = lower_prim_func(func)
    assert has_given(lowered) == bool(BETWEEN.search(made.kernel_source))
    assert {finding.kind for finding in check(lowered)} == FOUND[kernel]


def test_roles_that_never_begin_together_are_told_how(
    branches: ModuleType, lower_prim_func: Callable[..., "Lowered"]
) -> None:
    """The deadlock has the lines of the wait and of the branch, and only where a stage is needed again."""
    lowered = lower_prim_func(branches.pipelined.get_tir(N=ROWS))
    (finding,) = check(lowered)
    lines = FILE.read_text(encoding="utf-8").splitlines()
    first, second = (lines[where.line - 1].strip() for where in finding.waiting)
    assert first.startswith("T.barrier_wait(free")
    assert second == "with T.ws(1):  # the barrier"
    assert finding.fix.startswith(
        "between branches of which one writes a tile that the other reads, "
    )
    assert check(lower_prim_func(branches.pipelined.get_tir(N=2)), 2) == []


def test_it_is_a_matter_of_the_check_alone(
    branches: ModuleType, lower_prim_func: Callable[..., "Lowered"]
) -> None:
    """In the synchronous meaning the roles run side by side, settled or not."""
    lowered = lower_prim_func(branches.pipelined.get_tir(N=ROWS))
    rows = np.arange(ROWS * 128, dtype=np.float32).reshape(ROWS, 128)
    for program in (lowered.program, lowered.written):
        (found,) = interpret_lanes(program, [rows])
        np.testing.assert_array_equal(found, rows[:, ::-1])


@pytest.mark.parametrize("is_off", [False, True])
def test_without_its_pass_there_is_none(tmp_path: Path, is_off: bool) -> None:
    """A kernel may turn it off."""
    path = tmp_path / "edited.py"
    options = f'pass_configs={{"tl.disable_thread_storage_sync": {is_off}}}'
    path.write_text(FILE.read_text("utf-8").replace("@tilelang.jit", f"@tilelang.jit({options})"))
    kernel = find_kernels(load_module(path))["pipelined"]
    found = importlib.import_module("tileyard.frontend.found")
    made = found.lower_config(kernel, {"N": ROWS}, {})
    assert made.lowered is not None
    assert has_given(made.lowered) != is_off
    assert bool(check(made.lowered)) != is_off
