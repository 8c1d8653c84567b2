"""Chooses what is shown of a block's history, and packs it: contents as base64, within a number of bytes.
Names are those of the source: a Program calls the second ``i`` of a kernel ``i_1``.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tileyard.base.model import Record
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Copy, Program
from tileyard.ir.tiles import Array
from tileyard.look.history import Access, History, Step
from tileyard.look.records import (
    Look,
    Part,
    ShownBuffer,
    ShownCopy,
    ShownStep,
    State,
)
from tileyard.reduce.edits import all_buffers

MOST_SHOWN = 400
"""Number of steps on a page."""
MOST_CONTENT = 3_400_000
"""Bytes of base64 on a page."""
WINDOWS = (1 << 16, 1 << 14, 1 << 12, 1 << 10)
"""Elements of a buffer that are shown, the first number with which the contents fit."""
_STAGES = 8
"""Largest first dimension that is shown as the slots of a pipeline."""
_NUMBERED = re.compile(r"\b([A-Za-z_]\w*?)_\d+\b")
_WORD = re.compile(r"\w+")

Box = tuple[tuple[int, ...], tuple[int, ...]]


class Contents:
    """The contents of a page, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.size = 0
        self._known: dict[bytes, int] = {}

    def add(self, array: Array) -> int:
        """The position of a content."""
        with np.errstate(all="ignore"):
            data = np.ascontiguousarray(array.astype("<f4")).tobytes()
        if data not in self._known:
            self._known[data] = len(self.texts)
            self.texts.append(base64.b64encode(data).decode())
            self.size += len(self.texts[-1])
        return self._known[data]


@dataclass(kw_only=True)
class Shown:
    """The steps, copies, buffers and states of a page with their contents; ``window`` is the number of
    elements of a buffer that are shown at most.
    """

    steps: list[ShownStep] = field(default_factory=list)
    copies: list[ShownCopy] = field(default_factory=list)
    buffers: list[ShownBuffer] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    contents: Contents = field(default_factory=Contents)
    window: int = 0


def pack(program: Program, history: History, outputs: Sequence[str]) -> Shown:
    """What is shown of a history, with the largest windows whose contents fit."""
    for window in WINDOWS:
        packer = _Packer(program, history, outputs, window)
        packer.run()
        if packer.shown.contents.size <= MOST_CONTENT:
            break
    return packer.shown


def choose_steps(steps: Sequence[Step]) -> list[Step]:
    """The steps that are shown: those that are kept, without some in the middle if there are too many."""
    kept = [step for step in steps if step.is_kept]
    if len(kept) <= MOST_SHOWN:
        return kept
    half = MOST_SHOWN // 2
    return kept[:half] + kept[-half:]


class _Packer:
    def __init__(
        self, program: Program, history: History, outputs: Sequence[str], window: int
    ) -> None:
        self._history = history
        self._buffers = all_buffers(program)
        self._tiles = [
            one.name for one in program.buffers if one.scope not in ("global", "barrier")
        ]
        self._windows = {
            name: self._find_window(name, window)
            for name in (*self._tiles, *outputs)
            if name in history.shapes
        }
        self._now: dict[str, Array] = {}
        self._lost: dict[str, Array] = {}  # which elements have a content that was not kept
        self._states: dict[State, int] = {}
        self.shown = Shown(window=window)

    def _find_window(self, name: str, most: int) -> Box:
        """The part of a tile that is shown, and of an output what the block has written."""
        shape = self._history.shapes[name]
        starts, extents = tuple(0 for _ in shape), shape
        if name not in self._tiles:
            boxes = [access.bounds() for _, access in self._history.written(name) if access.size]
            if boxes:
                starts = tuple(map(min, zip(*(at for at, _ in boxes), strict=True)))
                ends = tuple(
                    map(
                        max,
                        zip(
                            *(tuple(map(sum, zip(*box, strict=True))) for box in boxes), strict=True
                        ),
                    )
                )
                extents = tuple(end - start for start, end in zip(starts, ends, strict=True))
        cut = list(extents)
        for axis in range(len(cut)):  # the outer dimensions are cut first, rows to a square
            others = math.prod(cut[axis + 1 :])
            square = math.isqrt(most) if axis == len(cut) - 2 else 1
            if math.prod(cut) > most:
                cut[axis] = max(min(cut[axis], max(most // max(others, 1), square)), 1)
        return starts, tuple(cut)

    def run(self) -> None:
        """Replay all steps, and pack those that are shown."""
        chosen = {step.index for step in choose_steps(self._history.steps)}
        self._find_copies()
        lives = self._find_lives()
        dirty: set[str] = set()
        skipped = 0
        for step in self._history.steps:
            if step.index not in chosen:
                skipped += 1
                dirty |= set(self._apply(step))
                continue
            before = tuple(self._filled(name, *self._windows[name]) for name in sorted(dirty))
            self._apply(step)
            writes = (self._part(access, with_content=True) for access in step.writes)
            reads = (self._part(access) for access in step.reads)
            self.shown.steps.append(
                ShownStep(
                    index=step.index,
                    number=step.number,
                    kind=step.kind,
                    loops=step.loops,
                    role=step.role,
                    unit=step.unit,
                    text=step.text,
                    reads=tuple(reads),
                    writes=tuple(writes),
                    before=before,
                    skipped=skipped,
                    state=self._state_of(step),
                    used_bytes=self._used(step.index, lives),
                    in_flight=tuple(
                        at
                        for at, one in enumerate(self.shown.copies)
                        if one.issued <= step.index and not 0 <= one.landed <= step.index
                    ),
                )
            )
            dirty.clear()
            skipped = 0
        self.shown.states = list(self._states)
        self.shown.buffers = [self._describe(name, lives) for name in self._windows]

    # ---- contents ---------------------------------------------------------------------------

    def _apply(self, step: Step) -> Iterator[str]:
        """Write what a step wrote; the buffers with a window."""
        return iter([name for access in step.writes for name in self._write(access)])

    def _write(self, access: Access) -> Iterator[str]:
        name = access.buffer
        if name not in self._windows:
            return
        shape = self._history.shapes[name]
        if name not in self._now:
            self._now[name] = np.full(shape, np.nan, np.float32)
            self._lost[name] = np.zeros(shape, np.bool_)
        array, lost = self._now[name], self._lost[name]
        if access.elements is not None:
            array, lost = array.reshape(-1), lost.reshape(-1)
            where: Any = access.elements
        else:
            where = tuple(
                slice(s, s + e) for s, e in zip(access.starts, access.extents, strict=True)
            )
        lost[where] = access.content is None
        if access.content is not None:
            array[where] = access.content
        yield name

    def _filled(self, name: str, starts: tuple[int, ...], extents: tuple[int, ...]) -> Part:
        """A box with its present content; without if some of it was not kept."""
        box = tuple(slice(s, s + e) for s, e in zip(starts, extents, strict=True))
        if self._lost[name][box].any():
            return Part(buffer=name, starts=starts, extents=extents)
        content = self._now[name][box]
        first = content.reshape(-1)[:1]
        if content.size and (
            np.array_equal(content, np.broadcast_to(first, content.shape))
            or np.isnan(content).all()
        ):
            return Part(buffer=name, starts=starts, extents=extents, value=repr(float(first[0])))
        return Part(
            buffer=name, starts=starts, extents=extents, content=self.shown.contents.add(content)
        )

    def _part(self, access: Access, *, with_content: bool = False) -> Part:
        starts, extents = access.bounds()
        if not with_content or access.buffer not in self._windows:
            return Part(buffer=access.buffer, starts=starts, extents=extents)
        first, size = self._windows[access.buffer]
        low = tuple(map(max, zip(starts, first, strict=True)))
        high = tuple(
            min(s + e, f + g) for s, e, f, g in zip(starts, extents, first, size, strict=True)
        )
        inside = tuple(max(b - a, 0) for a, b in zip(low, high, strict=True))
        if 0 in inside:  # none of it is shown
            return Part(buffer=access.buffer, starts=starts, extents=extents)
        return self._filled(access.buffer, low, inside)

    # ---- copies, memory and states ----------------------------------------------------------

    def _find_copies(self) -> None:
        landed = {step.issued: step.index for step in self._history.steps if step.kind == "land"}
        for step in self._history.steps:
            if not step.is_kept or step.kind not in ("run", "issue"):
                continue
            if not isinstance(step.stmt, Copy) and step.kind != "issue":
                continue
            into = step.writes or self._landing(landed.get(step.index, -1))
            if not into or not step.reads:
                continue
            source, target = step.reads[0], into[-1]
            scopes = {self._buffers[one.buffer].scope for one in (source, target)}
            if step.kind == "run" and "global" not in scopes:
                continue
            self.shown.copies.append(
                ShownCopy(
                    number=step.number,
                    unit=step.unit,
                    loops=step.loops,
                    source=self._part(source),
                    into=self._part(target),
                    issued=step.index,
                    landed=step.index if step.kind == "run" else landed.get(step.index, -1),
                )
            )

    def _landing(self, index: int) -> list[Access]:
        return self._history.steps[index].writes if index >= 0 else []

    def _find_lives(self) -> Mapping[str, tuple[int, int]]:
        """For each tile the step that writes it first and the one that uses it last."""
        lives: dict[str, tuple[int, int]] = {}
        for step in self._history.steps:
            for access in (*step.writes, *step.reads):
                first, _ = lives.get(access.buffer, (step.index, 0))
                lives[access.buffer] = first, step.index
        return lives

    def _used(self, index: int, lives: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        used: dict[str, int] = {}
        for name in self._tiles:
            first, last = lives.get(name, (0, -1))
            buffer = self._buffers[name]
            if first <= index <= last and not buffer.view_of:
                used[buffer.scope] = used.get(buffer.scope, 0) + self._bytes(name)
        return used

    def _bytes(self, name: str) -> int:
        size = math.prod(self._history.shapes[name])
        return size * find_dtype(self._buffers[name].dtype).numpy.itemsize

    def _describe(self, name: str, lives: Mapping[str, tuple[int, int]]) -> ShownBuffer:
        buffer, shape = self._buffers[name], self._history.shapes[name]
        starts, extents = self._windows[name]
        first, last = lives.get(name, (-1, -1))
        is_staged = buffer.scope == "shared" and len(shape) > 2 and 1 < shape[0] <= _STAGES
        return ShownBuffer(
            name=name,
            dtype=buffer.dtype,
            scope=buffer.scope,
            shape=shape,
            starts=starts,
            extents=extents,
            bytes=self._bytes(name),
            slots=shape[0] if is_staged else 0,
            first=first,
            last=last,
        )

    def _state_of(self, step: Step) -> int:
        if step.state not in self._states:
            self._states[step.state] = len(self._states)
        return self._states[step.state]


def with_source_names(look: Look, buffers: Iterable[str]) -> Look:
    """The same with names of the kernel's source: ``i_1`` becomes ``i`` if the source has only that, and no
    buffer has that name.
    """
    words = set(_WORD.findall("\n".join(look.about.source))).difference(buffers)

    def write(text: str) -> str:
        return _NUMBERED.sub(
            lambda one: one[1] if one[1] in words and one[0] not in words else one[0], text
        )

    changed = {
        name: _rewrite(getattr(look, name), write)
        for name in look.__struct_fields__
        if name not in ("about", "contents")
    }
    return msgspec.structs.replace(look, **changed)


def _rewrite(value: object, write: Callable[[str], str]) -> object:
    """A value with all texts in it rewritten."""
    match value:
        case str():
            return write(value)
        case tuple():
            return tuple(_rewrite(one, write) for one in value)
        case Record():
            fields = {
                name: _rewrite(getattr(value, name), write) for name in value.__struct_fields__
            }
            return msgspec.structs.replace(value, **fields)
        case _:
            return value
