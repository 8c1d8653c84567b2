"""Loops that are said to be checked for every trip count, beside what happens at other ones."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.samples import sampled

from tileyard.ir.nodes import Program
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.sync.blocks import Checked, Effort, check_program
from tileyard.sync.changes import Form, form_of
from tileyard.sync.recurrence import Seen, find_period

EXAMPLES = int(os.environ.get("TILEYARD_SYNC_PROGRAMS", "40"))
LARGEST = 60
"""A mistake comes within so many iterations, or never."""

pytestmark = pytest.mark.slow
CALM = settings(
    max_examples=max(EXAMPLES // 5, 1),
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

ROLES = """
def roles(X: float32[N, 4], Y: out.float32[N, 4]):
    N: dim
    one: grid[1]
    threads(256)
    x: shared.float32[{stages}, 4]
    full: barrier[{ones}]
    free: barrier[{ones}]
    seen: local.int32[1]
    used: local.int32[1]
    row: local.int32[40]
    fresh: local.int32[1]

    init_barrier(full)
    init_barrier(free)
    with roles:
        with role(0, 128):
            seen[0] = 0
            for k in serial(N):
                {load}
        with role(128, 256):
            used[0] = 0
            for m in serial(N):
                {use}
"""
"""Two roles, and {stages} tiles between them."""

LOAD = """wait_barrier(free[{stage}], ({turn} + 1) % 2)
arrive(full[{stage}], count=0, bytes=16)
with issue("tma", full[{stage}]):
    copy(X[k, :], x[{stage}, :])
arrive(full[{stage}])"""
USE = """wait_barrier(full[{stage}], {turn} % 2)
copy(x[{stage}, :], Y[m, :])
arrive(free[{stage}])"""


def indent(text: str, by: int) -> str:
    """The lines after the first one moved to the right."""
    return text.replace("\n", "\n" + " " * by)


def roles(stages: int, load: str = LOAD, use: str = USE) -> str:
    """The Program with these bodies, in which ``{stage}`` and ``{turn}`` are the usual ones."""
    bodies = []
    for body, name in ((load, "k"), (use, "m")):
        known = body if name == "k" else body.replace("seen", "used")  # registers of its own
        known = known.replace("{stage}", f"{name} % {stages}")
        bodies.append(indent(known.replace("{turn}", f"({name} // {stages})"), 16))
    ones = ", ".join(["1"] * stages)
    return ROLES.format(stages=stages, ones=ones, load=bodies[0], use=bodies[1])


def at(text: str, trips: int, *, literal: bool) -> Program:
    """The Program for this many trips; as a kernel that is made for one size where they are ``literal``."""
    fixed = text.replace("    N: dim\n", "").replace("N", str(trips))
    program = read_program(fixed if literal else text)
    verify(program)
    return program


def check(program: Program, trips: int) -> Checked:
    """What is found at so many trips."""
    return check_program(program, {}, [np.ones((trips, 4), np.float32)], (), Effort(has_heads=True))


def explore(text: str, stages: int, *, literal: bool) -> tuple[int, dict[int, bool]]:
    """The period that `tileyard check` finds, and at which trip counts there are no mistakes."""

    def form_at(trips: int) -> Form | None:
        return form_of(at(text, trips, literal=literal), {} if literal else {"N": trips})

    known: dict[int, Seen | None] = {}
    right: dict[int, bool] = {}
    wanted: list[int] = [*range(stages + 3), 4 * stages + 2]
    while wanted:
        trips = wanted.pop(0)
        form = form_at(trips)
        if form is None:
            return 0, right
        found = check(form.program, trips)
        right[trips] = not found.findings
        known[trips] = Seen(form=form, runs=found.heads)
        if not wanted and all(right.values()):
            period = find_period(known, form_at)
            if period.iterations:
                return period.iterations, right
            is_new = period.missing is not None and period.missing <= 8 * stages + 4
            wanted = [period.missing] if is_new and period.missing not in known else []
    return 0, right


CONDITIONS = (
    "{v} == {c}",
    "{v} >= {c}",
    "{v} == N - {c}",
    "{v} + {c} == N",
    "N - {v} > {c}",
    "{v} % {c} == {d}",
    "{v} // {c} == {d}",
    "{v} % 4 * {c} == {v}",
    "{v} * {d} > N",
    "{v} * 2 - N == {d}",
    "N == {c}",
    "N % {c} == {d}",
    "min({v}, {c}) == {c}",
    "({v} & {c}) == {c}",
    "({v} >> 2) == {d}",
    "select({v} > {c}, {v} - {c}, 0) == {d}",
    "seen[0] == {c}",
    "seen[0] > {c} and {v} % 2 == 0",
    "not ({v} < {c} or {v} > {c})",
)
COUNTS = ("seen[0] + 1", "(seen[0] + 1) % {d}", "min(seen[0] + 1, {c})", "{v} % {d}", "{v}")
MISTAKES = (
    "arrive(free[0])",
    "arrive(full[{v} % {s}])",
    "wait_barrier(free[{v} % {s}], 1)",
    "wait_barrier(full[0], {v} // {s} % 2)",
    "x[0, 0] = 1.0",
    "row[{v}] = 1",
    "seen[0] = fresh[0]",
    "sync(threads=128, count=256, barrier=1)",
)


NUMBERS = st.sampled_from((1, 2, 3, 4, 6, 8, 12, 20, 40))


@st.composite
def twisted(draw: st.DrawFn) -> tuple[str, int, frozenset[int]]:
    """A Program with a mistake in some iterations only, its stages, and the numbers in it."""
    stages = draw(st.integers(1, 3))
    c, d = draw(NUMBERS), draw(NUMBERS)
    is_load = draw(st.booleans())
    condition, count, mistake = (draw(st.sampled_from(a)) for a in (CONDITIONS, COUNTS, MISTAKES))
    twist = f"if {condition}:\n    {mistake}\nseen[0] = {count}"
    twist = twist.format(v="k" if is_load else "m", c=c, d=d, s=stages)
    load, use = (f"{LOAD}\n{twist}", USE) if is_load else (LOAD, f"{USE}\n{twist}")
    return roles(stages, load, use), stages, frozenset((c, d))


@given(found=twisted(), literal=st.booleans())
@CALM
def test_a_claim_holds(found: tuple[str, int, frozenset[int]], literal: bool) -> None:
    """Whatever happens in some iterations only, in the middle or near the end."""
    text, stages, numbers = found
    period, right = explore(text, stages, literal=literal)
    if period:
        around = {n + more for n in numbers for more in range(-1, 4)} | {2 * max(numbers), LARGEST}
        for trips in sorted(around | {max(right) + 1 + more for more in range(period)}):
            if trips not in right and trips >= 0:
                assert not check(at(text, trips, literal=literal), trips).findings, (
                    f"{trips}: {text}"
                )


@pytest.mark.parametrize(
    ("stages", "literal"),
    sampled([(n, one) for n in (1, 2, 3) for one in (False, True)], [(1, True), (2, False)]),
)
def test_a_pipeline_repeats_with_its_stages_and_parities(stages: int, literal: bool) -> None:
    """No two iterations of a period have the same tile and parity; all smaller trip counts are checked."""
    period, right = explore(roles(stages), stages, literal=literal)
    assert period == 2 * stages
    assert all(right.values())
    assert set(range(max(right) - 1)) <= right.keys()


LATE = [
    ("if {v} < 2:\n    {good}\nelse:\n    {good}", 2),  # told apart in the first iterations
    ("if {v} + 2 < N:\n    {good}\nelse:\n    {good}", 2),  # and in the last ones
    ("seen[0] = (seen[0] + 1) % 3\nif seen[0] == 1:\n    {good}\nelse:\n    {good}", 6),
    ("seen[0] = min(seen[0] + 1, 3)\n{good}", 2),
    ("{good}\nif {v} == 40:\n    arrive(free[0])", 0),
    ("{good}\nif N == 40:\n    arrive(free[0])", 0),
    ("{good}\nif {v} * 2 - N == 40:\n    arrive(free[0])", 0),
    ("{good}\nif {v} % 41 == 40:\n    arrive(free[0])", 0),
    ("{good}\nif min({v}, 40) == 40:\n    arrive(free[0])", 0),
    ("{good}\nseen[0] = seen[0] + 1\nif seen[0] == 40:\n    arrive(free[0])", 0),
    ("{good}\nseen[0] = {v}\nif seen[0] == 40:\n    arrive(free[0])", 0),
    ("{good}\nrow[{v}] = 1", 0),
    ("{good}\nseen[0] = select({v} > 40, fresh[0], 1)", 0),
    ("{good}\nif X[{v}, 0] == 2.0:\n    arrive(free[0])", 0),
]
"""What a loop does beside the usual, and the period that it has then."""


@pytest.mark.parametrize(
    ("body", "period"), sampled(LATE, [LATE[i] for i in (0, 2, 4, 5, 8, 9, 11, 13)])
)
def test_what_comes_late_is_not_claimed(body: str, period: int) -> None:
    """A condition that holds at one iteration may hold at any; on the first or last few it is no obstacle."""
    good = USE.replace("\n", "\n    ") if "else" in body else USE
    use = body.replace("{good}", good).replace("{v}", "m")
    found, right = explore(roles(1, LOAD, use), 1, literal=False)
    assert all(right.values())
    assert found == period


def test_arrivals_that_add_up_are_no_period() -> None:
    """A barrier that asks for three arrivals has another state after each of three iterations."""
    slow = roles(1).replace("free: barrier[1]", "free: barrier[3]")
    period, right = explore(slow, 1, literal=False)
    assert not period
    assert not all(right.values())
