"""Layouts of the tiles that a look shows, and the bank conflicts of its statements."""

import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
from tests.unit.look.test_looking import PIPELINE, ROLES, look

from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.look.layouts import find_layouts
from tileyard.passes.infer_shared_layouts import InferSharedLayouts

TEXT = """
def f(A: {dtype}[{rows}, {columns}], B: out.{dtype}[{columns}, {rows}], C: out.{dtype}[{rows}, {columns}]):
    threads(128)
    s: shared.{dtype}[{rows}, {columns}]{layout}

    copy(A, s)
    for i, j in parallel({columns}, {rows}):
        B[i, j] = s[j, i]
    copy(s, C)
"""
NUMBER_OF_TILES = 10
Place = Callable[[int, int], int]
"""The address in bytes of an element."""


def draw_tile(draw: random.Random, *, is_pinned: bool) -> tuple[str, int, int, int]:
    """A Program with a tile, its rows and columns, and the bytes of an element."""
    dtype, size = draw.choice([("float32", 4), ("float16", 2), ("int8", 1)])
    rows, columns = draw.choice([8, 16, 32, 64]), draw.choice([16, 32, 64])
    chunk, pitch = draw.choice([1, 2, 4, 8]), columns + draw.choice([0, 1, 2, 4, 8, 16])
    layout = draw.choice(
        [
            f"i0 * {pitch} + i1",
            f"i0, (i1 // {chunk} ^ i0 % {columns // chunk}) * {chunk} + i1 % {chunk}",
            "i1, i0",
        ]
    )
    pinned = f" = layout({layout})" if is_pinned else ""
    text = TEXT.format(dtype=dtype, rows=rows, columns=columns, layout=pinned)
    return text, rows, columns, size


def addresses_of(program: Program, rows: int, columns: int, size: int) -> Place:
    """The addresses that the layout in a Program's text gives to the tile, by plain arithmetic."""
    found = re.search(r"= layout\((.*)\)\n", print_program(program))
    text = found[1] if found else "i0, i1"

    place_of = eval(f"lambda i0, i1: ({text},)")
    every = {(r, c): place_of(r, c) for r in range(rows) for c in range(columns)}
    box = [max(each) + 1 for each in zip(*every.values(), strict=True)]
    return lambda r, c: (
        sum(at * math.prod(box[axis + 1 :]) for axis, at in enumerate(every[r, c])) * size
    )


def count_simply(threads: Sequence[Sequence[int]], size: int) -> int:
    """The most words in a bank, of threads that each take bytes of adjacent elements at these addresses."""
    at_once = 128 // max(len(threads[0]) * size, 4)
    most = 1
    for first in range(0, len(threads), at_once):
        banks = defaultdict[int, set[int]](set)
        for addresses in threads[first : first + at_once]:
            for byte in (address + more for address in addresses for more in range(size)):
                banks[byte // 4 % 32].add(byte // 4)
        most = max(most, *(len(words) for words in banks.values()))
    return most


def count_copy(place: Place, rows: int, columns: int, size: int) -> int:
    """The ways of a copy of a tile, of which each thread takes 16 bytes, in the parts that are together."""
    count = together = min(16 // size, columns)

    def is_together(n: int) -> bool:
        return all(
            place(r, c) % (n * size) == 0
            and all(place(r, c + more) == place(r, c) + more * size for more in range(n))
            for r in range(rows)
            for c in range(0, columns, n)
        )

    while not is_together(together):
        together //= 2
    most = 1
    for part in range(0, count, together):
        begins = [thread * count + part for thread in range(min(32, rows * columns // count))]
        threads = [
            [place(*divmod(first + more, columns)) for more in range(together)] for first in begins
        ]
        most = max(most, count_simply(threads, size))
    return most


@pytest.mark.parametrize("architecture", ["", "sm_80"])
def test_conflicts_are_those_of_a_simple_count(architecture: str) -> None:
    """Over 32 banks of 4 bytes, for the addresses of a warp in random tiles with pinned or chosen layouts."""
    draw = random.Random(architecture)
    seen = set()
    for _ in range(NUMBER_OF_TILES):
        text, rows, columns, size = draw_tile(draw, is_pinned=not architecture)
        program = read_program(text)
        found = find_layouts(program, architecture)
        if architecture:
            program = InferSharedLayouts(architecture).run(program).program
        if program.buffers[0].layout is None:
            assert found.conflicts == {}
            assert "s are not shown, because no layout is known" in found.sentence
            continue
        place = addresses_of(program, rows, columns, size)
        column = [[place(thread % rows, thread // rows)] for thread in range(32)]
        by_copy = count_copy(place, rows, columns, size)
        (written,), (read,), (copied,) = (found.conflicts[number] for number in (0, 3, 4))
        assert (written.how, written.ways) == ("written by a copy", by_copy), text
        assert (read.how, read.ways) == ("read by a parallel loop", count_simply(column, size)), (
            text
        )
        assert (copied.how, copied.ways) == ("read by a copy", by_copy), text
        seen |= {read.ways, by_copy}
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("i0, i1", "rows"),
        ("i0 * 80 + i1", "rows with 64 bytes of padding"),
        ("i0 * 32 + (i1 // 4 ^ i0 % 8) * 4 + i1 % 4", "swizzle of 128 bytes"),
        ("i1, i0", "layout(i1, i0)"),
    ],
)
def test_layouts_are_in_words(place: str, words: str) -> None:
    """Swizzle or padding; others as in the Program."""
    columns = 64 if "80" in place else 32
    layout = f" = layout({place})"
    program = read_program(TEXT.format(dtype="float32", rows=32, columns=columns, layout=layout))
    assert find_layouts(program, "").words == {"s": f"{words}, pinned by the kernel"}


def test_only_threads_have_conflicts() -> None:
    """A tile that TMA fills and threads read: only the latter is counted."""
    text = ROLES.replace("[2, 4]", "[2, 4] = layout(i0 * 4 + i1)")
    program = read_program(text)
    (found,) = find_layouts(program, "").conflicts.values()
    assert [(one.buffer, one.how, one.ways) for one in found] == [("x", "read by a copy", 1)]


def test_a_look_has_layouts_and_conflicts_or_says_why_not() -> None:
    """By tile and statement; without a layout there is none, and a sentence."""
    pinned = look(*[PIPELINE.replace("[2, 4]", "[2, 4] = layout(i0 * 4 + i1)")] * 2)
    assert [one.layout for one in pinned.buffers if one.name == "x"] == [
        "rows, pinned by the kernel"
    ]
    said = [(one.text, one.conflicts[0].how) for one in pinned.statements if one.conflicts]
    assert said[-1] == ("Y[k * 4 + i] = x[k % 2, i] * 2.0", "read by a parallel loop")
    plain = look(PIPELINE, PIPELINE)
    assert not any(one.layout for one in plain.buffers)
    assert not any(one.conflicts for one in plain.statements)
    assert plain.layouts.startswith("Bank conflicts of x are not shown, because")


def test_an_unknown_architecture_has_no_layouts() -> None:
    """The sentence says why."""
    text = TEXT.format(dtype="float32", rows=8, columns=32, layout="")
    assert "there are no rules for 'sm_75'" in find_layouts(read_program(text), "sm_75").sentence
