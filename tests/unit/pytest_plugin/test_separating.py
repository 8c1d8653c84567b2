"""Blocks that hold a device are cut out of tests."""

import textwrap
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tileyard.pytest_plugin.separating import CutTest, NotSeparableError, cut


def define(folder: Path, body: str) -> FunctionType:
    """The function ``test`` of a module with this body."""
    file = folder / "module.py"
    text = "def test(tile_device, size=2):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    file.write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), names)
    found: FunctionType = names["test"]
    return found


class Elsewhere:
    """What ``tile_device`` is in these tests: runs a block with copies of what it is given."""

    def __init__(self, test: CutTest) -> None:
        self.seen: list[dict[str, object]] = []
        self._test = test

    def block(
        self, number: int, values: dict[str, object], count: int | None = None
    ) -> dict[str, object]:
        """See ``FarDevice``."""
        given = self._test.pick(number, values)
        self.seen.append(given)
        held = "npu:0" if count is None else tuple(f"npu:{number}" for number in range(count))
        return self._test.run(number, given, held)


@pytest.mark.parametrize(
    ("body", "seen", "result"),
    [
        ("x = 1\nwith tile_device() as d:\n    y = (d, x + size)\nreturn (d, y[1])", [{"x": 1, "size": 2}],
         ("npu:0", 3)),
        ("with tile_device():\n    y = [n for n in range(size)]\nreturn y", [{"size": 2}], [0, 1]),
        (
            "for i in range(2):\n    with tile_device():\n        for j in (1, 2):\n"
            "            if j: break\nreturn i, j",
            [{}, {"j": 1}],
            (1, 1),
        ),
        ("with tile_device(count=size) as (a, b):\n    x = a + b\nreturn b, x", [{}],
         ("npu:1", "npu:0npu:1")),
        ("with tile_device(count=1) as all:\n    x = size\nreturn all, x", [{"size": 2}], (("npu:0",), 2)),
        ("if size == 2:\n    with tile_device():\n        def f(): return size\n        y = f()\n"
         "    y += 1\nreturn y", [{"size": 2}], 3),
    ],
)  # fmt: skip
def test_a_block_gets_what_it_uses_and_gives_what_it_sets(
    tmp_path: Path, body: str, seen: list[dict[str, object]], result: object
) -> None:
    """The test comes to what it came to, and its body never ran here."""
    function = define(tmp_path, body)
    test = cut(function)
    test.apply()
    device = Elsewhere(test)
    assert function(device) == result
    assert device.seen == seen


def test_an_assert_in_a_block_says_what_it_compared(tmp_path: Path) -> None:
    """As pytest's do, with the line of the file."""
    test = cut(define(tmp_path, "x = 3\nwith tile_device():\n    assert x == int('4')"))
    with pytest.raises(AssertionError, match="assert 3 == 4") as caught:
        test.run(0, {"x": 3}, None)
    expected = 4
    assert caught.traceback[-1].lineno + 1 == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("with tile_device():\n    return 1", "line 3 leaves the block"),
        ("for i in (1,):\n    with tile_device():\n        break", "line 4 leaves the block"),
        ("with tile_device(2) as two:\n    pass", "in another way than for a block"),
        ("with tile_device(count=2) as x[0]:\n    pass", "enters more than"),
        ("with tile_device() as a, open(size):\n    pass", "enters more than"),
        ("hold = tile_device", "line 2 uses tile_device in another way"),
        ("def f():\n    with tile_device(): pass\nf()", "line 3 uses tile_device in another way"),
        ("with tile_device():\n    size.__x", "line 3 uses the private name __x"),
        ("y = size.__x\nwith tile_device(): pass", "line 2 uses the private name __x"),
        ("with tile_device():\n    with tile_device(): pass", "line 3 leaves the block"),
    ],
)
def test_what_cannot_be_cut_says_why(tmp_path: Path, body: str, reason: str) -> None:
    """Such a test runs whole."""
    with pytest.raises(NotSeparableError, match=reason):
        cut(define(tmp_path, body))
