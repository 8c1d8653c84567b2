"""Lines of C, indented; and C's names for the Program's."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tileyard.ir.nodes import Program, Scalar
from tileyard.ir.walk import walk

_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline "
    "int long register restrict return short signed sizeof static struct switch typedef union "
    "unsigned void volatile while asm typeof linux unix i386 main memcpy memset size_t int8_t "
    "int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t"
)
_OWN = (
    "slot_ content_ buffers scalars grid threads first last scratch shared report block blocks fault a_ b_ depth_ e_ end_ fill_ from_ i_ "
    "is_clear_ j_ k_ left_ next_ p_ panels_ rows_ rest_ width_ inside_ result_ right_ row_ to_ top_ total_ at_ count_ n_ part_"
)
_ROWS = tuple(f"row{i}_" for i in range(64))
_TAKEN = frozenset((*f"{_KEYWORDS} {_OWN}".split(), *_ROWS))


class Writer:
    """Collects lines; ``block`` indents what is written inside it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        """Write one line."""
        self._lines.append("  " * self._depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """``head {``, what is written inside, and ``}``. A block in which there is but a block is one."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        place = self.place()
        yield
        self._unwrap(place)
        self._depth -= 1
        self.line("}")

    def _unwrap(self, place: int) -> None:
        """Take away the braces of a block that is all there is since ``place``."""
        pad = "  " * self._depth
        inside = self._lines[place:]
        edges = [
            i
            for i, line in enumerate(inside)
            if line.startswith(pad) and line[len(pad) : len(pad) + 1] != " "
        ]
        if len(edges) == 2 and (inside[0], inside[-1]) == (f"{pad}{{", f"{pad}}}"):
            self._lines[place:] = [line.removeprefix("  ") for line in inside[1:-1]]

    def place(self) -> int:
        """Where the next line goes, for ``insert``."""
        return len(self._lines)

    def insert(self, place: int, text: str) -> None:
        """Write a line at an earlier place, at the depth of the next one."""
        self._lines.insert(place, "  " * self._depth + text)

    def has(self, word: str, since: int) -> bool:
        """Whether ``word`` stands in what was written since that place."""
        pattern = re.compile(rf"\b{word}\b")
        return any(pattern.search(line) for line in self._lines[since:])

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"


class Names:
    """C names: the user's own where C allows it, and fresh ones beside them."""

    def __init__(self, program: Program) -> None:
        self._used = set(_TAKEN)
        self._names: dict[str, str] = {}
        for name in _names_of(program):
            if name not in self._names:
                self._names[name] = self.fresh(name)

    def __getitem__(self, name: str) -> str:
        """The C name of one of the Program's names."""
        return self._names[name]

    def bind(self, name: str) -> None:
        """Take ``name``, which must be fresh, as a name of the Program."""
        self._names[name] = name

    def alias(self, name: str, c_name: str) -> None:
        """Take ``c_name``, which must be fresh, for a name that no Program has."""
        self._names[name] = c_name

    def fresh(self, stem: str) -> str:
        """A C name that nothing else has, as close to ``stem`` as possible."""
        if stem.startswith(("ty_", "TY_", "__")) or not stem.isascii():
            stem = "user_" + "".join(c if c.isascii() else f"x{ord(c):x}" for c in stem)
        name, count = stem, 1
        while name in self._used:
            name, count = f"{stem}_{count}", count + 1
        self._used.add(name)
        return name


def _names_of(program: Program) -> Iterator[str]:
    for param in program.params:
        yield param.var.name if isinstance(param, Scalar) else param.buffer.name
    yield from (var.name for var in program.dims)
    yield from (axis.var.name for axis in program.grid)
    yield from (buffer.name for buffer in program.buffers)
    for stmt in walk(program.body):
        var = getattr(stmt, "var", None)
        if var is not None:
            yield var.name
