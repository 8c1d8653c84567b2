"""Several kernels in one compilation: they share the reading of headers, and nothing else.

NVRTC's time for a source is a part for its headers, though these are precompiled, and a part for its
code. A group pays the first part once. Each function's machine code is the same, byte for byte, as if
its source were compiled alone. What NVRTC refuses is halved until the guilty sources stand alone.
"""

import time
from collections.abc import Callable, Iterator, Sequence

from tileyard.model import Record
from tileyard.targets.cuda.nvrtc import Compiled, NvrtcError

LARGEST = 8
"""Beyond this a group saves little more, and its members wait for each other."""

Compile = Callable[[str], Compiled]


class GroupSize:
    """Finds out what pays: one source alone is timed, then a group, and the better one is kept.

    ``fixed`` is what people asked for, 0 for finding out.
    """

    def __init__(self, fixed: int = 0) -> None:
        self._fixed = fixed
        self._each_s: dict[int, float] = {}

    def choose(self, waiting: int) -> int:
        """How many of ``waiting`` sources to compile together next."""
        if self._fixed:
            return min(self._fixed, waiting)
        known = self._each_s
        # The first one of all makes the precompiled headers, and tells nothing.
        if len(known) < 2 or waiting == 1:
            return 1
        tried = [size for size in known if size > 1]
        if not tried:
            return min(LARGEST, waiting)
        best = min(known, key=lambda size: known[size])
        return min(LARGEST if best > 1 else 1, waiting)

    def note(self, count: int, seconds: float) -> None:
        """Take in how long ``count`` sources took together."""
        if not self._each_s:
            self._each_s[0] = float("inf")  # the precompiled headers were made
            return
        each = seconds / count
        before = self._each_s.get(count, each)
        self._each_s[count] = (before + each) / 2


class Attempt(Record):
    """What became of one source: a binary that it may share with others, or NVRTC's log."""

    compiled: Compiled | None
    log: str = ""


def compile_in_groups(
    sources: Sequence[str], size: GroupSize, compile_one: Compile
) -> Sequence[Attempt]:
    """Compile sources that begin with the same headers; one verdict for each, in order.

    They are given without these, and their functions have names of their own.
    """
    done: list[Attempt] = []
    while len(done) < len(sources):
        count = size.choose(len(sources) - len(done))
        started = time.perf_counter()
        attempts = list(_compile_together(sources[len(done) : len(done) + count], compile_one))
        if all(attempt.compiled is not None for attempt in attempts):
            size.note(count, time.perf_counter() - started)
        done += attempts
    return done


def _compile_together(sources: Sequence[str], compile_one: Compile) -> Iterator[Attempt]:
    try:
        compiled = compile_one("".join(sources))
    except NvrtcError as error:
        if len(sources) == 1:
            yield Attempt(compiled=None, log=error.log)
            return
        half = len(sources) // 2
        yield from _compile_together(sources[:half], compile_one)
        yield from _compile_together(sources[half:], compile_one)
    else:
        for _ in sources:
            yield Attempt(compiled=compiled)
