"""Generated loops as TileLang's pipeline plans them: the plan means the same, or its mistake is known."""

import importlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

import pytest
from tests.differential.conftest import lower_prim_func
from tests.passes import generated
from tests.samples import sampled

from tileyard.base.errors import UnsupportedError, UsageError
from tileyard.frontend.to_tilelang import write_program
from tileyard.ir.nodes import Atomic, Copy, For, Gemm, If, Let, Program, Reduce, Stmt, Store
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.ir.walk import Effects, bodies, buffer_effects, own_effects, walk
from tileyard.passes.pipeline import Step
from tileyard.workers.pass_steps import StepChecker

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

__all__ = ["lower_prim_func"]

pytestmark = pytest.mark.slow

SAMPLE = (6, 21, 35, 36, 52, 69, 89, 133)
"""Numbers of generated Programs with every kind of statement; TileLang pipelines most, and all well."""

PROGRAMS = os.environ.get("TILEYARD_PLAN_PROGRAMS", "")
ARCHITECTURES = ("sm_80", "sm_90a")
KINDS = {
    *("pipelined loop", "serial loop in a pipelined loop", "pipelined loop in a pipelined loop"),
    *("pipelined loop in a serial loop", "parallel loop in a pipelined loop"),
    *("parallel loop in a serial loop", "parallel loop in a parallel loop"),
    *("guard", "guard with an else", "let", "fill", "store", "atomic", "reduce", "gemm"),
    *("copy from global to shared", "copy from shared to fragment", "copy from fragment to shared"),
    *(
        "copy from fragment to global",
        "copy from fragment to fragment",
        "copy from shared to global",
    ),
}


def deal(count: int) -> list[tuple[str, int]]:
    """The first generated Programs as text, and what their ``n`` is: always the same ones."""
    dealer = generated.Dealer(0)
    found = []
    for _ in range(count):
        text = generated.make_program(dealer.pick)
        # TileLang's loops without stages are plain ones
        text = re.sub(r"pipelined\((.*), stages=0\)", r"serial(\1)", text)
        found.append((text, int(dealer.pick("0123456789"))))
    return found


def kinds_of(program: Program, body: tuple[Stmt, ...], around: str = "") -> Iterator[str]:
    """What kinds of statements are in ``body``, and in which loop the loops are."""
    scopes = {b.name: b.scope for b in program.buffers}
    for stmt in body:
        within = around
        match stmt:
            case For():
                yield f"{stmt.kind} loop{around}"
                within = f" in a {stmt.kind} loop"
            case If():
                yield "guard with an else" if stmt.orelse else "guard"
            case Copy():
                ends = (scopes.get(box.buffer, "global") for box in (stmt.src, stmt.dst))
                yield "copy from {} to {}".format(*ends)
            case _:
                yield str(stmt.__struct_config__.tag)
        for inner in bodies(stmt):
            yield from kinds_of(program, inner, within)


# ---- what TileLang 0.1.15 is known to do wrong ----------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What of a pipelined loop decides which of TileLang's mistakes it can meet. ``steps`` are what each
    statement of its body reads and writes, ``copied`` the tiles that are filled from global memory,
    ``elsewhere`` those that other loops fill so. ``guards`` is what the conditions around the whole body
    read. ``updates`` says that there are atomic updates outside of it.
    """

    loop: For
    steps: tuple[tuple[Stmt, Effects], ...]
    copied: frozenset[str]
    tiles: frozenset[str]
    guards: frozenset[str]
    is_inside: bool
    updates: bool
    elsewhere: frozenset[str] = frozenset()

    @property
    def reads(self) -> frozenset[str]:
        """What any statement reads."""
        return frozenset().union(*(effects.read for _, effects in self.steps))

    @property
    def writes(self) -> frozenset[str]:
        """What any statement writes."""
        return frozenset().union(*(effects.written for _, effects in self.steps))


def shapes_of(program: Program) -> list[Shape]:
    """The shapes of the loops that have stages."""
    tiles = frozenset(b.name for b in program.buffers)
    atomics = sum(isinstance(stmt, Atomic) for stmt in walk(program.body))
    found: list[Shape] = []

    def visit(body: tuple[Stmt, ...], *, is_inside: bool) -> None:
        for stmt in body:
            if isinstance(stmt, For) and stmt.kind == "pipelined":
                steps, guards = stmt.body, frozenset[str]()
                while len(steps) == 1 and isinstance(steps[0], If):
                    guards |= own_effects(steps[0]).read
                    steps = (*steps[0].then, *steps[0].orelse)
                known = tuple((one, buffer_effects((one,))) for one in steps)
                copied = frozenset(
                    name
                    for one in walk(steps)
                    if isinstance(one, Copy | Store)
                    for effects in [own_effects(one)]
                    for name in effects.written & tiles
                    if effects.read - tiles
                )
                updates = sum(isinstance(one, Atomic) for one in walk(stmt.body)) < atomics
                found.append(Shape(stmt, known, copied, tiles, guards, is_inside, updates))
            for inner in bodies(stmt):
                visit(inner, is_inside=is_inside or isinstance(stmt, For))

    visit(program.body, is_inside=False)
    copied = Counter(name for one in found for name in one.copied)
    several = frozenset(name for name, count in copied.items() if count > 1)
    return [replace(one, elsewhere=several) for one in found]


def has_dead_copy(one: Shape) -> bool:
    """A tile is copied that no statement of the loop reads."""
    return bool(one.copied - one.reads)


def has_global(one: Shape) -> bool:
    """The loop copies from an array that it writes."""
    return bool((one.reads & one.writes) - one.tiles)


def has_read_name(one: Shape) -> bool:
    """A name is bound to an element of a tile that the loop writes."""
    return any(isinstance(s, Let) and e.read & one.writes & one.tiles for s, e in one.steps)


def has_read_guard(one: Shape) -> bool:
    """A copy stands under a condition on a tile that the loop writes."""
    guards = (stmt for stmt, _ in one.steps if isinstance(stmt, If))
    return any(
        own_effects(guard).read & one.writes & one.tiles
        and any(isinstance(inner, Copy) for inner in walk(guard.then))
        for guard in guards
    )


def has_private_copy(one: Shape) -> bool:
    """A parallel loop fills a tile from one that another statement writes."""
    others = (
        (stmt, effects, [e.written for s, e in one.steps if s is not stmt])
        for stmt, effects in one.steps
    )
    return any(
        isinstance(stmt, For)
        and effects.read & one.tiles & frozenset().union(*written)
        and effects.written & one.tiles
        for stmt, effects, written in others
    )


def is_released_early(one: Shape) -> bool:
    """A parallel loop fills a tile, and there is a product."""
    kinds = {type(stmt) for stmt in walk(one.loop.body)}
    loops = (s for s, e in one.steps if isinstance(s, For) and e.written & one.copied)
    return Gemm in kinds and any(loop.kind == "parallel" for loop in loops)


def has_nest(one: Shape) -> bool:
    """A loop within a step copies from an array."""
    return any(
        isinstance(stmt, For) and stmt.kind != "parallel" and effects.read - one.tiles
        for stmt, effects in one.steps
    )


def has_two_writers(one: Shape) -> bool:
    """Two statements write one tile that is filled from an array."""
    names = [name for _, effects in one.steps for name in effects.written & one.copied]
    return len(names) > len(set(names))


def has_carried(one: Shape) -> bool:
    """A statement reads a tile that a later one fills from an array, for the next iteration."""
    written: set[str] = set()
    for number, (_, effects) in enumerate(one.steps):
        later = frozenset().union(*(e.written for _, e in one.steps[number + 1 :]))
        if effects.read & (later - written) & one.copied:
            return True
        written |= effects.written
    return False


DIFFERS = r"^\d+ bytes? of \w are not|dependence reordered\]$"
UNORDERED = (
    r"\[(overwritten in flight|read before arrival|source changed in flight|missing "
    r"fence|overwritten before release)\]$"
)
UNREAD = r"before it is bound|is not bound"


@dataclass(frozen=True, kw_only=True)
class Known:
    """A mistake of TileLang's: the loops that ``meet`` it, what is reported of them then, and one of them.
    ``loop`` shows it on these ``architectures``, with an ``n`` of 4; on others it explains nothing.
    """

    meet: Callable[[Shape], bool]
    said: str
    architectures: tuple[str, ...]
    loop: str


KNOWN = {
    "initialisation in front of two nested loops is moved into the outer one": Known(
        meet=lambda one: one.is_inside,
        said=DIFFERS,
        architectures=("sm_90a",),
        loop="""
for t_p in serial(2):
    for k in pipelined(n, stages=2):
        copy(B[k, :], a)
        for i in parallel(4):
            c[i] = c[i] + a[i]
""",
    ),
    "copies of a tile that nobody reads are in flight together": Known(
        meet=has_dead_copy,
        said=UNORDERED,
        architectures=ARCHITECTURES,
        loop="""
for k in pipelined(n, stages=2):
    copy(B[k, :], b)
    copy(A[k, :], a)
    copy(a, d)
""",
    ),
    "a name for an element of a tile is lost behind the loop": Known(
        meet=has_read_name,
        said=rf"{UNREAD}|{DIFFERS}",
        architectures=ARCHITECTURES,
        loop="""
for k in pipelined(n, stages=2):
    copy(A[k, :], b)
    x = b[0]
    fill(d, x)
for m in pipelined(5, stages=3):
    copy(G[m, :, :], g)
    copy(H[m, :, :], h)
    gemm(g, h, p)
    y = d[0] + c[0]
    d[0] = y
""",
    ),
    "a copy is ahead of what its condition depends on": Known(
        meet=has_read_guard,
        said=rf"{DIFFERS}|uninitialised",
        architectures=("sm_90a",),
        loop="""
for k in pipelined(n, stages=2):
    copy(A[k, :], a)
    copy(a, d)
    if d[0] > 2.0:
        copy(B[k, :], b)
    copy(b, c)
""",
    ),
    "roles decide differently whether there is a step": Known(
        meet=lambda one: bool(one.guards & one.writes),
        said=rf"^deadlock|{DIFFERS}|{UNORDERED}",
        architectures=("sm_90a",),
        loop="""
for k in pipelined(n, stages=1):
    if c[0] < 9.0:
        copy(B[k, :], a)
        for i in parallel(4):
            c[i] = c[i] + a[i]
""",
    ),
    "a stage is released behind the product, and one of its tiles is read later": Known(
        meet=is_released_early,
        said=UNORDERED,
        architectures=("sm_90a",),
        loop="""
for k in pipelined(9, stages=4):
    copy(G[k, :, :], g)
    copy(H[k, :, :], h)
    gemm(g, h, p, clear=True)
    for i in parallel(4):
        t[i] = B[k, 3 - i]
    for j in parallel(4):
        d[j] = t[j] + t[j]
""",
    ),
    "a copy is ahead of what the step before writes to its array": Known(
        meet=has_global,
        said=rf"{DIFFERS}|{UNORDERED}",
        architectures=ARCHITECTURES,
        loop="""
for k in pipelined(n, stages=2):
    copy(A[k, :], a)
    for i in parallel(4):
        c[i] = c[i] + a[i]
    copy(c, A[k + 1, :])
""",
    ),
    "a loop that copies, within a step, is one copy": Known(
        meet=has_nest,
        said=rf"{DIFFERS}|{UNORDERED}|is outside",
        architectures=("sm_80",),
        loop="""
for k in pipelined(n, stages=3):
    for j in serial(2):
        copy(B[k + j, :], b)
        for i in parallel(4):
            c[i] = c[i] + b[i]
    copy(c, a)
    copy(a, C[k, :])
""",
    ),
    "two loops that fill one tile give it versions of versions": Known(
        meet=lambda one: bool(one.copied & one.elsewhere),
        said=r"has \d+ bits|is outside",
        architectures=("sm_90a",),
        loop="""
for k in pipelined(3, stages=2):
    copy(A[k, :], t)
    copy(t, d)
for j in pipelined(3, stages=3):
    copy(B[j, :], t)
    copy(t, d)
""",
    ),
    "two loops that fill one tile leave it the versions of the second one": Known(
        meet=lambda one: bool(one.copied & one.elsewhere),
        said=r"has \d+ bits",
        architectures=("sm_80",),
        loop="""
for k in pipelined(3, stages=3):
    copy(A[k, :], t)
    copy(t, d)
for j in pipelined(3, stages=2):
    copy(B[j, :], t)
    copy(t, d)
""",
    ),
    "a tile that a condition of a copy depends on has versions, of which one is empty": Known(
        meet=has_read_guard,
        said="uninitialised",
        architectures=("sm_80",),
        loop="""
for k in pipelined(n, stages=2):
    copy(c, c)
    if c[0] > 2.0:
        copy(B[k, :], t)
""",
    ),
    "a role that fills a tile has a copy of its own of what the other role changes": Known(
        meet=has_private_copy,
        said=DIFFERS,
        architectures=("sm_90a",),
        loop="""
for k in pipelined(n, stages=2):
    for i in parallel(4):
        s[i] = d[i] + 1.0
    copy(A[k, :], a)
    copy(a, c)
    copy(s, d)
""",
    ),
    "a tile that a step fills twice is filled again before its first use": Known(
        meet=has_two_writers,
        said=rf"{DIFFERS}|{UNORDERED}",
        architectures=("sm_90a",),
        loop="""
for k in pipelined(n, stages=2):
    copy(A[k, :], a)
    for i in parallel(4):
        c[i] = c[i] + a[i]
    copy(B[k, :], a)
    for j in parallel(4):
        d[j] = d[j] + a[j]
""",
    ),
    "a tile that is used before the step refills it is refilled too early": Known(
        meet=has_carried,
        said=rf"{DIFFERS}|{UNORDERED}",
        architectures=ARCHITECTURES,
        loop="""
fill(a, 1.0)
for k in pipelined(n, stages=2):
    for i in parallel(4):
        c[i] = c[i] + a[i]
    copy(A[k, :], a)
""",
    ),
    "a reduction of a tile that has versions goes over them": Known(
        meet=lambda one: any(isinstance(stmt, Reduce) for stmt in walk(one.loop.body)),
        said="reduce is not covered: the extents",
        architectures=("sm_80",),
        loop="""
for k in pipelined(n, stages=2):
    copy(A[k, :], t)
    copy(c, d)
    reduce(d, q, kind="sum", axis=0)
    C[k, 2] = q[0]
    if d[0] > 2.0:
        copy(B[k, :], b)
""",
    ),
    "an atomic update is left to the threads of both roles": Known(
        meet=lambda one: one.is_inside and one.updates,
        said="by the threads of several roles together is not covered",
        architectures=("sm_90a",),
        loop="""
for k in serial(3):
    for i in parallel(4):
        atomic_add(C[0, i], c[i])
    for j in pipelined(3, stages=2):
        copy(B[j, :], a)
        for m in parallel(4):
            d[m] = d[m] + a[m]
""",
    ),
}
REFUSED = {
    "Multiple writes to overlapping buffer regions": "two statements of a step write one tile",
    "crosses pipeline stages": "a name that is bound in one stage is used in another one",
    "should be equal to the number of pipeline stages": "it finds other statements than it has planned for",
    "A dependency on multiple async stages is not supported": "a step needs copies of several stages",
    "in the same stage of the software pipeline cannot be reordered": (
        "it reorders what depends on each other"
    ),
    "Versioned buffer load escaped pipeline stage": "a tile of the loop is used in front of it or behind",
}
"""What TileLang says of loops that it does not pipeline, and of which it refuses the kernel, too."""


@dataclass(frozen=True)
class Loop:
    """A Program and TileLang's elaboration of it; ``fault`` says what is wrong with it as written."""

    func: Any
    shapes: list[Shape]
    checker: StepChecker
    fault: str


def make_loop(text: str, count: int) -> Loop:
    """Write a Program as TileLang, and have it be elaborated; it comes back as the same."""
    again = importlib.import_module("tileyard.frontend.written_again")
    program = read_program(text)
    verify(program)
    func = again.elaborate(write_program(program))
    lowered = lower(func)
    again.require_same(program, lowered.written)
    step = Step(name="written", program=lowered.written, lines=lowered.written_lines)
    checker = StepChecker(step, generated.make_arrays(), [count])
    return Loop(func, shapes_of(program), checker, checker.find_fault(step))


def lower(func: Any) -> "Lowered":  # noqa: ANN401 (TileLang is untyped)
    """What the frontend makes of a function."""
    frontend = importlib.import_module("tileyard.frontend.tilelang")
    lowered: Lowered = frontend.lower_prim_func(func, [], "f")
    return lowered


def find_fault(loop: Loop, architecture: str) -> str:
    """What is wrong with TileLang's plan, or why there is none; empty where nothing is."""
    planning = importlib.import_module("tileyard.frontend.pipelined")
    try:
        planned = lower(planning.plan(loop.func, architecture, {}))
    except (UnsupportedError, UsageError) as error:
        return str(error)
    step = Step(name="planned", program=planned.written, lines=planned.written_lines)
    return loop.checker.find_fault(step)


def explain(fault: str, shapes: list[Shape], architecture: str) -> str:
    """Which known mistake of this architecture, or which refusal, a fault is; empty for none."""
    for words, reason in REFUSED.items():
        if words in fault:
            return f"TileLang refuses it: {reason}"
    for reason, known in KNOWN.items():
        is_here = architecture in known.architectures and any(map(known.meet, shapes))
        if is_here and re.search(known.said, fault):
            return reason
    return ""


loop_of = lru_cache(maxsize=1)(make_loop)
"""One for both architectures, which come one after the other."""


@cache
def dealt() -> list[tuple[str, int]]:
    """As many Programs as tests need."""
    return deal(int(PROGRAMS or max(SAMPLE) + 1))


@pytest.mark.usefixtures("lower_prim_func")
@pytest.mark.parametrize(
    ("number", "architecture"),
    [*product(range(int(PROGRAMS)), ARCHITECTURES)]
    if PROGRAMS
    else [*zip(SAMPLE, cycle(ARCHITECTURES), strict=False)],
)
def test_a_plan_means_what_is_written(number: int, architecture: str) -> None:
    """The same results, and no wait and no dependence is wrong; else it is known why."""
    text, count = dealt()[number]
    loop = loop_of(text, count)
    if loop.fault and number not in SAMPLE:
        pytest.skip(f"wrong as it is written: {loop.fault}")
    assert loop.fault == "", text
    fault = find_fault(loop, architecture)
    reason = explain(fault, loop.shapes, architecture) if fault and number not in SAMPLE else ""
    if reason:
        pytest.xfail(reason)
    assert fault == "", text


@pytest.mark.usefixtures("lower_prim_func")
@pytest.mark.parametrize(
    ("reason", "architecture"),
    sampled(
        [(reason, one) for reason, known in KNOWN.items() for one in known.architectures],
        [(reason, known.architectures[-1]) for reason, known in list(KNOWN.items())[::2]],
    ),
)
def test_a_known_mistake_is_still_there(reason: str, architecture: str) -> None:
    """A TileLang without it is noticed."""
    known = KNOWN[reason]
    loop = make_loop(generated.finished(known.loop.lstrip()), 4)
    assert loop.fault == ""
    assert re.search(known.said, find_fault(loop, architecture))
    assert any(map(known.meet, loop.shapes))


def test_the_sample_has_every_kind() -> None:
    """Statements, nests, numbers of stages and of iterations."""
    shown = deal(max(SAMPLE) + 1)
    programs = [read_program(shown[number][0]) for number in SAMPLE]
    assert {kind for one in programs for kind in kinds_of(one, one.body)} >= KINDS
    pairs = set()
    for text, count in (shown[number] for number in SAMPLE):
        counts = {"n": count, "n + 1": count + 1}
        for trips, stages in re.findall(r"pipelined\((n \+ 1|n|\d).*stages=(\d)", text):
            pairs.add((int(stages), counts[trips] if trips in counts else int(trips)))
    assert {stages for stages, _ in pairs} == set(range(1, 6))
    assert any(trips == 0 for _, trips in pairs)
    assert any(0 < trips < stages for stages, trips in pairs)
    assert any(trips > stages > 1 for stages, trips in pairs)
