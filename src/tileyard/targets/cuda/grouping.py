"""Compiles several kernels in one compilation, so that headers are read only once.

Functions' machine code is, byte for byte, that of their sources alone, unless they contain a
position in the table of addresses that all code of a cubin shares: such sources are compiled again,
alone. If NVRTC refuses a group, sources that it names are compiled alone, for their own messages;
if it names none, the group is halved.
"""

import re
import time
from collections.abc import Callable, Sequence

from tileyard.base.model import Record
from tileyard.targets.cuda.nvrtc import Compiled, NvrtcError
from tileyard.targets.cuda.resources import read_cubin
from tileyard.targets.cuda.sass import reads_tables

LARGEST = 8
"""Most sources per group: larger groups save little more, and members wait for each other."""

Compile = Callable[[str], Compiled]

_PLACE = re.compile(r"(?P<file>[^\s(]+)\((?P<line>\d+)\): ")
_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(?P<symbol>[^']+)'")


class Member(Record):
    """A source without its leading headers, with ``name`` as file name and its functions'
    ``symbols``. The text begins at ``line`` of the whole.
    """

    name: str
    text: str
    symbols: tuple[str, ...]
    line: int = 1

    def as_part(self) -> str:
        """Its text as part of a larger source, in which messages use its own name and lines."""
        end = "" if self.text.endswith("\n") else "\n"
        return f'#line {self.line} "{self.name}"\n{self.text}{end}'


class GroupSize:
    """Finds the better group size: times a source alone, then a group; ``fixed`` is the user's, or 0."""

    def __init__(self, fixed: int = 0) -> None:
        self._fixed = fixed
        self._each_s: dict[int, float] = {}
        self._is_warm = False

    def choose(self, waiting: int) -> int:
        """Number of ``waiting`` sources to compile together next."""
        if self._fixed:
            return min(self._fixed, waiting)
        if 1 not in self._each_s or waiting == 1:
            return 1
        together = [seconds for size, seconds in self._each_s.items() if size > 1]
        if together and min(together) > self._each_s[1]:
            return 1
        return min(LARGEST, waiting)

    def note(self, count: int, seconds: float) -> None:
        """Record the time of ``count`` sources together."""
        if not self._is_warm:
            self._is_warm = True  # the precompiled headers were made, or read for the first time
            return
        each = seconds / count
        before = self._each_s.get(count, each)
        self._each_s[count] = (before + each) / 2


def compile_in_groups(
    members: Sequence[Member], size: GroupSize, compile_one: Compile
) -> Sequence[Compiled]:
    """Compile sources with the same headers; one verdict each, in order. MemoryError if NVRTC gets none."""
    done: list[Compiled] = []
    while len(done) < len(members):
        count = size.choose(len(members) - len(done))
        started = time.perf_counter()
        attempts = _compile_together(members[len(done) : len(done) + count], compile_one)
        if all(attempt.cubin for attempt in attempts):
            size.note(count, time.perf_counter() - started)
        done += attempts
    return done


def own_part(log: str, member: Member) -> str:
    """NVRTC's and ptxas' output for one source of a group: warnings, errors, its functions' resources."""
    own: list[str] = []
    is_own = False
    for line in log.splitlines():
        if (place := _PLACE.match(line)) is not None:
            is_own = place["file"] == member.name
        elif (entry := _ENTRY.match(line)) is not None:
            is_own = entry["symbol"] in member.symbols
        if is_own:
            own.append(f"{line}\n")
    return "".join(own)


def _compile_together(members: Sequence[Member], compile_one: Compile) -> list[Compiled]:
    try:
        compiled = compile_one("".join(member.as_part() for member in members))
    except NvrtcError as error:
        if len(members) == 1:
            return [Compiled(cubin=b"", log=str(error))]
        return _compile_apart(members, str(error), compile_one)
    bound = _find_bound(members, compiled.cubin) if len(members) > 1 else []
    apart = {member.name: _compile_together([member], compile_one)[0] for member in bound}
    return [
        apart.get(member.name, Compiled(cubin=compiled.cubin, log=own_part(compiled.log, member)))
        for member in members
    ]


def _compile_apart(members: Sequence[Member], log: str, compile_one: Compile) -> list[Compiled]:
    """Compile those that a refused group's log names alone, the others together. An earlier source
    may spoil a named one, so only one compiled alone is blamed.
    """
    named = {found["file"] for found in _PLACE.finditer(log)}
    suspects = [member for member in members if member.name in named]
    if suspects:
        parts = [*([one] for one in suspects), [m for m in members if m.name not in named]]
    else:
        half = len(members) // 2
        parts = [list(members[:half]), list(members[half:])]
    attempts = {
        member.name: attempt
        for part in parts
        if part
        for member, attempt in zip(part, _compile_together(part, compile_one), strict=True)
    }
    return [attempts[member.name] for member in members]


def _find_bound(members: Sequence[Member], cubin: bytes) -> list[Member]:
    """The sources whose code depends on what else is in the cubin."""
    bound = {one.symbol for one in read_cubin(cubin) if reads_tables(one.code)}
    return [member for member in members if not bound.isdisjoint(member.symbols)]
