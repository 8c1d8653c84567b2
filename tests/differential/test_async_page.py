"""What the tile IR keeps of asynchrony, synchronization and pipelines: each is tried and documented."""

import difflib
import importlib
import os
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.conftest import ROOT
from tests.differential.conftest import TARGET
from tests.differential.language.tabulate import reason_of

from tileyard.base.errors import UnsupportedError
from tileyard.ir.printer import print_program

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "reference" / "async.md"
WRITE = "TILEYARD_WRITE_DOCS"
HEAD = """\
# What the tile IR keeps of asynchrony

The operations of `tilelang.language` for asynchrony, synchronization, pipelines and roles, and what the
Program as written, which `tileyard check` examines, keeps of each ([meanings](../design/async.md)). \
Written by
`tests/differential/test_async_page.py`, in which TileLang elaborates a kernel with the operation and the \
same kernel without it,
and both are lowered: the lines are those that the operation adds. After a change, \
`{write}=1 make test` rewrites this page. A
new name in TileLang makes that test fail.

| word | meaning |
| --- | --- |
| **kept** | as the lines show |
| **over at once** | TileLang waits for it at its place, and so does the IR |
| **dropped** | nothing remains of it, and no check needs it, for the given reason |
| **given up** | the kernel is accepted, and its asynchronous operations are not checked: `tileyard check` \
names the cause |
| **refused** | a kernel with it has no Program; the message names it, with its line |

Frequent reasons: a **hint** states how to copy, and TileLang waits for the copy in any case. An \
**instruction**
acts on addresses and registers; other operations on this page express that at tile level. Operations that \
need a **cluster or
tensor memory** are only listed: blocks of a Program do not know of each other, and it has no such storage.

The cpu target receives the settled Program, in which all operations are over at once (`passes/settle.py`).
"""

_SAYS = re.compile(
    r"with (issue|roles)|(commit|wait)_group|arrive|barrier|sync\(|fence|pipelined|order=|layout"
)
"""Lines that say something of when a thing is done, or where it lies."""

_ABOUT = re.compile(
    r"async|barrier|mbar|tma|wgmma|warpgroup|tcgen05|cluster|fence|wait|arrive|commit|sync(?!tax)|"
    r"pdl|nreg|annotate|[Pp]ipelin|^ws|reg_alloc|clc_|tmem|gather|scatter|swizzle|gemm|"
    r"im2col|copy(?!sign)|descriptor",
)
"""Names that have to be on the page."""

_ELSEWHERE = re.compile(
    r"^(match_|any_sync|all_sync|shfl_|ballot_|get_warp_idx|tvm_(load|store|bmma|mma)|get_cluster_)"
)
"""Votes, exchanges and questions of threads, and TVM's own products, which the page of the cpu target has."""

_NOT_HERE = {
    "Copies and fills",
    "Matrix products",
    "Reductions and scans",
    "Atomic updates",
    "Arithmetic on elements",
    "Functions of elements",
    "Several numbers at once",
    "Storage and views",
    "Launches, loops, branches and roles",
    "Threads, warps and random numbers",
    "Single instructions of GPUs",
}
"""Groups of the cpu target's page, operations of which need not be on this one."""


class Found(NamedTuple):
    """What came out of a row's kernel: ``lines`` are those that the operation adds."""

    kept: str
    lines: list[str]
    refusal: str = ""


@cache
def _module(name: str) -> ModuleType:
    """A module of the rows or of the names; importing it imports TileLang."""
    os.environ.setdefault("TILELANG_DEFAULT_TARGET", TARGET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TileLang and torch warn while they are imported
        return importlib.import_module(f"tests.differential.language.{name}")


def _rows() -> Iterator[Any]:
    for rows in _module("asynchrony").GROUPS.values():
        yield from rows


@pytest.fixture(scope="module")
def find(lower_prim_func: Callable[..., "Lowered"]) -> Callable[[Any], Found]:
    """Lowers a row's two kernels, and says what became of the operation."""

    def lower(operation: Any, dtype: str) -> "Lowered":  # noqa: ANN401 (TileLang has no types)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TileLang warns of its own operations
            return lower_prim_func(operation.elaborate(dtype))

    def try_row(row: Any) -> Found:  # noqa: ANN401
        try:
            lowered = lower(row.kernel, row.dtype)
        except UnsupportedError as error:
            return Found("refused", [], reason_of(error))
        assert row.without is not None, f"{row.kernel.title} is taken"
        lines = _added(lower(row.without, row.dtype), lowered)
        if lowered.given_up:
            return Found("given up", [], "; ".join(given.message for given in lowered.given_up))
        if not lines:
            return Found("dropped", [])
        return Found("kept" if any(map(_SAYS.search, lines)) else "over at once", lines)

    known: dict[str, Found] = {}

    def run(row: Any) -> Found:  # noqa: ANN401
        title = row.kernel.title
        if title not in known:
            known[title] = try_row(row)
        return known[title]

    return run


def _added(without: "Lowered", lowered: "Lowered") -> list[str]:
    """The lines that only the second one has, as written, without the head."""
    before, after = (print_program(one.written).splitlines()[1:] for one in (without, lowered))
    changed = difflib.ndiff(before, after)
    return [line[2:] for line in changed if line.startswith("+ ")]


def _describe(row: Any, found: Found) -> str:  # noqa: ANN401
    least = min((len(line) - len(line.lstrip()) for line in found.lines), default=0)
    lines = [
        "&emsp;" * ((len(line) - len(line.lstrip()) - least) // 4) + _code(line.strip())
        for line in found.lines
    ]
    what = "<br>".join(lines) or found.refusal
    return f"| {_code(row.kernel.title)} | {found.kept} | {what} | {row.why} |"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def test_the_documented_page_is_what_was_found(find: Callable[[Any], Found]) -> None:
    """No line by hand."""
    sections = []
    for title, rows in _module("asynchrony").GROUPS.items():
        lines = [_describe(row, find(row)) for row in rows]
        head = [
            f"## {title}",
            "",
            "| in a kernel | | in the Program | |",
            "| --- | --- | --- | --- |",
        ]
        sections.append("\n".join([*head, *lines]))
    found = "\n\n".join([HEAD.format(write=WRITE).rstrip(), *sections]) + "\n"
    if os.environ.get(WRITE):
        PAGE.write_text(found)
    assert found == PAGE.read_text(), f"{WRITE}=1 writes the page anew"


def test_what_is_claimed_of_each_operation_is_so(find: Callable[[Any], Found]) -> None:
    """The reason that stands beside it is one for what became of it."""
    wrong = [
        f"{row.kernel.title}: {found.kept}, not {row.kept}"
        for row in _rows()
        if (found := find(row)).kept != row.kept
    ]
    expected: list[str] = []
    assert wrong == expected


def test_refusals_name_what_is_refused(find: Callable[[Any], Found]) -> None:
    """By the word that the operation has in TIR, where it is another one."""
    refused = [row for row in _rows() if row.kept == "refused"]
    assert all(row.kernel.said in find(row).refusal for row in refused)


def test_whatever_is_dropped_or_refused_has_a_reason() -> None:
    """What is kept explains itself."""
    assert all(row.why for row in _rows() if row.kept not in ("kept", "over at once"))


def _missing() -> set[str]:
    """Names of the language that should be on the page and are not."""
    names = _module("names")
    public = set(names.public_names())
    here = {name for row in _rows() for name in row.kernel.names}
    groups = _module("catalogue").GROUPS.items()
    elsewhere = {
        name
        for title, operations in groups
        if title in _NOT_HERE
        for operation in operations
        for name in operation.names
        if not _ABOUT.search(name) or _ELSEWHERE.search(name)
    }
    left = public - here - elsewhere
    return left - {name for group in names.others(left).values() for name in group}


def test_every_name_of_this_kind_is_on_the_page() -> None:
    """As an operation tried here, or one that has nothing to do with asynchrony and is tried elsewhere."""
    expected: set[str] = set()
    assert _missing() == expected


def test_a_new_name_of_the_language_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a newer TileLang makes the test above fail."""
    monkeypatch.setattr(_module("names").T, "tma_later", lambda tile: tile, raising=False)
    expected = {"tma_later"}
    assert _missing() == expected
