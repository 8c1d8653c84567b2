"""What a look inside a block found, as data: the steps that are shown, the way of an element, the
verdict.
"""

from typing import Literal

from tileyard.base.model import Record, Value

Kind = Literal["run", "issue", "land", "sync"]
"""A statement that is over at once; the start of an asynchronous operation; its effect; a wait, arrival
or commit."""


class BarrierState(Record):
    """A barrier after a step: its phase, and the arrivals and bytes that the phase has and waits for."""

    name: str
    phase: int
    arrived: int
    expected: int
    pending: int


class GroupState(Record):
    """Operations in flight on a unit for a role after a step: in no group yet, and in each group from the
    oldest.
    """

    unit: str
    role: int
    open: int
    groups: tuple[int, ...]


class State(Record):
    """The barriers and groups after a step."""

    barriers: tuple[BarrierState, ...] = ()
    groups: tuple[GroupState, ...] = ()


class Part(Record):
    """A box of a buffer; in a step also its ``content`` afterwards: a position in ``Look.contents``, or the
    ``value`` that all elements have. With neither the content is unknown.
    """

    buffer: str
    starts: tuple[int, ...]
    extents: tuple[int, ...]
    content: int = -1
    value: str = ""


class ShownBuffer(Record):
    """A buffer, and the box of it that is shown. ``slots``: the versions of a pipeline that its first
    dimension numbers, 0 for none. Its memory is in use from step ``first`` to step ``last``. ``layout`` says
    where a tile in shared memory has its elements; empty if it is not known.
    """

    name: str
    dtype: str
    scope: str
    shape: tuple[int, ...]
    starts: tuple[int, ...]
    extents: tuple[int, ...]
    bytes: int
    slots: int = 0
    first: int = -1
    last: int = -1
    layout: str = ""


class BankConflicts(Record):
    """How a statement's threads read or write a tile, and the most words of one bank that a warp takes at
    once: 1 is without conflict.
    """

    buffer: str
    how: str
    ways: int


class ShownStatement(Record):
    """A statement of the Program: its line in the user's file, 0 if unknown, and its text in the tile IR;
    ``conflicts`` of the tiles whose layout is known.
    """

    number: int
    line: int
    text: str
    depth: int
    conflicts: tuple[BankConflicts, ...] = ()


class ShownStep(Record):
    """Step ``index`` of the block. ``skipped`` steps before it are left out, and left ``before`` behind.
    ``state`` is a position in ``Look.states``; ``used_bytes`` the tiles in use by scope. ``in_flight``
    has the copies, by position in ``Look.copies``, that were issued and have not arrived.
    """

    index: int
    number: int
    kind: Kind
    loops: tuple[tuple[str, int], ...]
    role: int
    unit: str
    text: str
    reads: tuple[Part, ...] = ()
    writes: tuple[Part, ...] = ()
    before: tuple[Part, ...] = ()
    skipped: int = 0
    state: int = 0
    used_bytes: dict[str, int] = {}
    in_flight: tuple[int, ...] = ()


class ShownCopy(Record):
    """The way of a copy: from where, to where, and the steps in which it was issued and arrived, -1:
    never.
    """

    number: int
    unit: str
    loops: tuple[tuple[str, int], ...]
    source: Part
    into: Part
    issued: int
    landed: int


class Visit(Record):
    """One execution of a statement on the way of an element, with one element that it wrote ``before`` and
    after; None if it is not finite, or not known. ``after`` is known if it ``is_kept``.
    """

    step: int
    loops: tuple[tuple[str, int], ...]
    before: float | None
    after: float | None
    is_kept: bool = True


class WayPart(Record):
    """A statement on the way of an element: what it wrote and read for it in ``count`` executions, the
    last step of these, and some of them if each wrote a single element. ``is_undefined``: something that
    it read was never written.
    """

    number: int
    count: int
    last: int
    wrote: tuple[Part, ...]
    read: tuple[Part, ...]
    visits: tuple[Visit, ...] = ()
    is_undefined: bool = False


class Influence(Record):
    """How an element changes if ``part`` of an input is 0 that one execution of a statement reads for it:
    in the reference and in the kernel. For number -1 the kernel does not read the part at all.
    """

    number: int
    loops: tuple[tuple[str, int], ...]
    part: Part
    reference: float
    kernel: float
    differs: bool


class Way(Record):
    """How one wrong element came to be: the statements, the last one first. A value is None if it is not
    finite. ``group``: how many elements are wrong as this one is, and where.
    """

    output: str
    index: tuple[int, ...]
    got: float | None
    want: float | None
    group: str = ""
    parts: tuple[WayPart, ...] = ()
    influences: tuple[Influence, ...] = ()


class Suspect(Record):
    """A statement that may be wrong, how that is known, and in the tile IR what it is and what would be
    right.
    """

    number: int
    line: int
    how: Literal["failed", "hazard", "undefined", "change", "reads"]
    why: str
    before: str = ""
    after: str = ""


class Verdict(Record):
    """The answer in one sentence, and what is not known. ``tried`` of ``total`` small changes were tried at
    ``sizes``.
    """

    sentence: str
    suspects: tuple[Suspect, ...] = ()
    limits: tuple[str, ...] = ()
    tried: int = 0
    total: int = 0
    sizes: str = ""

    @property
    def lines(self) -> frozenset[int]:
        """The lines that it names."""
        return frozenset(one.line for one in self.suspects)


class ShownOutput(Record):
    """The block's part of an output: positions in ``Look.contents`` of what is expected and of a mask of
    what is wrong (1), both of the box of the buffer that is shown; -1 without a reference.
    """

    name: str
    total: int
    wrong: int
    want: int = -1
    mask: int = -1


class About(Record):
    """What is looked at: the kernel with its arguments, and the lines of its function from ``first_line``
    on.
    """

    kernel: str = ""
    file: str = ""
    config: dict[str, Value] = {}
    arguments: dict[str, Value] = {}
    source: tuple[str, ...] = ()
    first_line: int = 0


class Look(Record):
    """A block of a kernel, step by step. Contents are float32 in base64, little endian, in rows. ``layouts``
    says how layouts of tiles in shared memory are known, and why others are not. The wrong elements are in
    so many ``groups``; ``ways`` has one element of each, or of the larger ones.
    """

    about: About
    block: tuple[int, ...]
    grid: tuple[int, ...]
    statements: tuple[ShownStatement, ...]
    buffers: tuple[ShownBuffer, ...]
    steps: tuple[ShownStep, ...]
    states: tuple[State, ...]
    copies: tuple[ShownCopy, ...]
    contents: tuple[str, ...]
    outputs: tuple[ShownOutput, ...]
    ways: tuple[Way, ...]
    verdict: Verdict
    groups: int = 0
    notes: tuple[str, ...] = ()
    layouts: str = ""
    total_steps: int = 0
