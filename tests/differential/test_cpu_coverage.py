"""Every tile operation of the IR that the CPU target takes on a scalar type gives what the interpreter gives.

Unless TILEYARD_SWEEPS is set, each operation is tried on a third of the types, in turns.
"""

import os
import warnings
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from tests.differential.tile_rows import Table, read_rows, tabulate_tiles, tile_case, tile_rows
from tests.samples import IS_WHOLE

from tileyard.base.model import Device
from tileyard.ir.dtypes import DTYPES
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.nodes import (
    Await,
    Break,
    If,
    Issue,
    Program,
    Roles,
    SparseGemm,
    Stmt,
    Synchronization,
    While,
)
from tileyard.ir.specs import tensor_specs
from tileyard.ir.walk import walk
from tileyard.targets.cpu.emit.program import generate
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import explain_difference, load_program

pytestmark = pytest.mark.slow

TARGET = CpuTarget()
STEP = 1 if IS_WHOLE else 3


def try_generating(program: Program) -> object:
    """The C text."""
    return generate(program, TARGET.toolchain.machine, {})


@cache
def tiles() -> Table:
    """What was found of tile operations."""
    return tabulate_tiles(try_generating, STEP)


def test_every_statement_is_tried() -> None:
    """But those without a scalar type, those that `passes/settle.py` removes, and those always refused."""
    programs = [read_rows({"": row}, "int32") for row in tile_rows().values()]
    tried = {type(stmt) for program in programs for stmt in walk(program.body)}
    settled = {kind for kind in get_args(Stmt) if not issubclass(kind, Issue | Synchronization)}
    expected = settled - {If, While, Break, Roles, Await, SparseGemm}
    assert tried == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_taken_gives_what_the_interpreter_gives(dtype: str, tmp_path: Path) -> None:
    """All tile operations on a type in one Program; the contract of targets does so for scalar ones."""
    case = tile_case(dtype, tiles())
    program = case.program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy says so when it converts NaN or overflows
        expected = interpret_lanes(program, case.arrays())
    cores = tuple(sorted(os.sched_getaffinity(0)))[:1]
    device = Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
    launch = load_program(TARGET, device, program, tmp_path).bind(case.arrays(), ())
    launch.run()
    names = [spec.name for spec in tensor_specs(program, {}) if spec.role != "in"]
    wrong = [
        f"{name}: {difference}"
        for name, got, want in zip(names, launch.read(), expected, strict=True)
        if (difference := explain_difference(got, want, case))
    ]
    assert not wrong, "\n".join(wrong)
