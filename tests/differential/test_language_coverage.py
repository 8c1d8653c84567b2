"""What of TileLang's language the cpu target takes: every operation tried, and written into the manual.

Unless TILEYARD_SWEEPS is set, each operation is tried on float32 and on one more type, in turns, and the
other cells are what the page has.
"""

import importlib
import os
import warnings
from collections.abc import Callable
from functools import cache
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import ROOT
from tests.differential.conftest import TARGET as GPU
from tests.differential.language.tabulate import (
    Cell,
    Notes,
    Row,
    code_of,
    describe_group,
    describe_types,
    problems,
    read_cells,
    summarize,
    tabulate,
    try_type,
)
from tests.samples import IS_WHOLE

from tileyard.ir.dtypes import DTYPES
from tileyard.targets.cpu.emit.program import generate
from tileyard.targets.cpu.target import CpuTarget

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "reference" / "cpu-coverage.md"
LANGUAGE = Path(__file__).parent / "language"
WRITE = "TILEYARD_WRITE_DOCS"
TRIES_ALL = IS_WHOLE or bool(os.environ.get(WRITE))
HEAD = """\
# Coverage of the cpu target

The tables show every operation of `tilelang.language` on every scalar type: **yes**, \
or **refused** with a message that names the operation
and its line. A cell is empty if TileLang itself makes no kernel of the operation, \
or if the operation does not exist for the type on
a GPU either (functions of real numbers on integers, functions of tensor floats, \
arithmetic on bool). `tests/differential/test_language_coverage.py` writes this page:
TileLang elaborates a kernel for each operation, which is then lowered to C. After a change, \
`{write}=1 make test` writes the page again.
A name that is new in TileLang makes that test fail.

Operations that address single threads of a GPU and its units are refused on purpose: shuffles and votes \
within a warp, vectors of
128 bits, random numbers of threads, clusters, tensor memory, 2:4 sparse and block-scaled products, \
pairs of numbers in one word, numbers
of 4 and 6 bits, and single instructions of PTX. Hints are accepted without effect, \
as are waits for operations that are synchronous here.

Supported operations are compared with the interpreter: tile operations in \
`tests/differential/test_cpu_coverage.py`; scalar operations,
conversions of every type, and gemms of selected types in the cases of every target's contract \
(`tileyard/testing/`).
Functions of more than one operation are compared with NumPy in `tests/differential/test_language_values.py`.
An operation is taken in part if it is refused for some types, \
or in one of its forms. An operation without a type, or refused by
name for every type, has one cell, tried on float32. Below the tables: \
[how exact products are](#how-exact-products-are), [options of the target](#options-of-the-target).
"""
TAIL = """\
## How exact products are

Where the CPU has a dot-product unit, it computes gemms of bfloat16 and 8-bit floats into float32, in an \
order of its own: at most
(k + 1) (2^-23 times the sum of the magnitudes + 2^-125) from the exact sum, unless a partial sum overflows. \
Gemms of bytes into 32 bits are exact.
`--target cpu:units=0` computes all sums of floats by FMA in the order of k. `--emit c` prints the unit in \
its first line; [more about units](../design/cpu.md).

## Options of the target

Options follow the target's name, separated by commas: `--target cpu:units=0,vectors=256`, or with a \
CPU level
`--target cpu:x86-64-v3,units=0`, which builds for this level and not for this host's CPU, \
as does `--cpu-arch`.

- `vectors=128`, `256` or `512`: the widest vectors in bits, by default the CPU's
- `units=0`: gemms without dot-product units; `units=2`: packed for units and computed in plain C, \
for tests; by default 1, with the CPU's
- `optimize=1`, `2` or `3`, by default 3: \
optimization by the C compiler; `unroll=1` unrolls all loops
- `debug=1` builds for a debugger, without optimization, as does `--debug`
- `shift=16`, `32` or `48`: bytes by which the code is shifted against the cache lines, by default 0
- `sanitize=1` reports reads of what was never written, as does `--sanitize`
"""


@cache
def catalogue() -> tuple[ModuleType, ModuleType]:
    """What is tried, and the names of the language; importing them imports TileLang."""
    os.environ.setdefault("TILELANG_DEFAULT_TARGET", GPU)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TileLang and torch warn while they are imported
        found = ("catalogue", "names")
        one, other = (importlib.import_module(f"tests.differential.language.{n}") for n in found)
    return one, other


Lower = Callable[..., "Lowered"]


@pytest.fixture(scope="module")
def attempt(lower_prim_func: Lower) -> Callable[[Any], object]:
    """Lowers a PrimFunc and generates C."""
    machine = CpuTarget().toolchain.machine

    def run(func: Any) -> object:  # noqa: ANN401 (TVM's nodes are untyped)
        lowered = lower_prim_func(func)
        return generate(lowered.program, machine, lowered.lines)

    return run


@pytest.fixture(scope="module")
def groups(attempt: Callable[[Any], object]) -> dict[str, list[Row]]:
    """What was found, by group."""
    documented = {} if TRIES_ALL else read_cells(PAGE.read_text())
    found: dict[str, list[Row]] = {}
    types = cycle(DTYPES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TileLang warns of its own operations
        for group, operations in catalogue()[0].GROUPS.items():
            for operation in operations:
                known = documented.get((group, code_of(operation.title)), {})
                tried = ("float32", next(types) if operation.is_typed else "")
                known = {dtype: cell for dtype, cell in known.items() if dtype not in tried}
                row = tabulate(operation, attempt, str(LANGUAGE), known)
                found.setdefault(group, []).append(row)
    return found


@pytest.fixture(scope="module")
def types(attempt: Callable[[Any], object]) -> dict[str, Cell]:
    """What becomes of each scalar type that TileLang has, by its names."""
    cases, names = catalogue()
    copy = next(iter(cases.GROUPS.values()))[0]
    return {
        listed: try_type(copy, name, attempt, str(LANGUAGE))
        for name, listed in names.scalar_types().items()
    }


def test_the_documented_table_is_what_was_found(
    groups: dict[str, list[Row]], types: dict[str, Cell]
) -> None:
    """No cell by hand."""
    notes = Notes()
    sections = [describe_group(title, rows, notes) for title, rows in groups.items()]
    found = "\n\n".join(
        [
            HEAD.format(write=WRITE).rstrip(),
            summarize(groups),
            describe_types(types),
            *sections,
            f"## Why refused\n\n{notes.describe()}",
            describe_others(),
            TAIL,
        ]
    )
    if os.environ.get(WRITE):
        PAGE.write_text(found)
    expected = PAGE.read_text()
    assert found == expected, f"{WRITE}=1 writes the page anew"


def test_refusals_name_the_operation_and_its_line(
    groups: dict[str, list[Row]], types: dict[str, Cell]
) -> None:
    """And TileLang makes a kernel of everything that is tried, for one type at least."""
    expected: list[str] = []
    found = [*problems(groups), *(cell.problem for cell in types.values() if cell.problem)]
    assert found == expected


def tried() -> set[str]:
    """The names of operations that are tried."""
    groups = catalogue()[0].GROUPS.values()
    return {name for operations in groups for operation in operations for name in operation.names}


def unexplained() -> set[str]:
    """Names of the language that are neither tried nor no operations."""
    names = catalogue()[1]
    left = set(names.public_names()) - tried()
    return left - {name for group in names.others(left).values() for name in group}


def test_every_name_of_the_language_is_tried_or_no_operation() -> None:
    """And nothing is tried that TileLang does not have."""
    expected: set[str] = set()
    assert unexplained() == expected
    assert tried() - set(catalogue()[1].public_names()) - {"-"} == expected


def test_a_new_name_of_the_language_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a newer TileLang makes the test above fail."""
    language = catalogue()[1].T
    monkeypatch.setattr(language, "transmogrify", lambda tile: tile, raising=False)
    expected = {"transmogrify"}
    assert unexplained() == expected


def describe_others() -> str:
    """The names that are not operations of kernels."""
    names = catalogue()[1]
    found = names.others(set(names.public_names()) - tried())
    lines = [
        f"- {what}: {', '.join(f'`{name}`' for name in listed)}"
        for what, listed in sorted(found.items())
    ]
    return "## No operations of kernels\n\n" + "\n".join(lines)
