"""Random Programs: what the checker says of them, beside what a GPU may make of them."""

import os
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sync.random_runs import RandomRun

from tileyard.base.errors import KernelFault
from tileyard.ir.hazards import LateRun
from tileyard.ir.interpret import interpret
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.sync.blocks import schedules_of

EXAMPLES = int(os.environ.get("TILEYARD_SYNC_PROGRAMS", "12"))
RUNS = 100
A = (np.arange(64, dtype=np.float32) + 1).reshape(16, 4)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(15 * max(EXAMPLES, 40))]
CALM = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def judge(text: str) -> tuple[set[str], int]:
    """A Program's kinds of hazards, and how many of some random runs differ from its synchronous meaning. All
    do where that has no result.
    """
    program = read_program(text)
    verify(program)
    try:
        (wanted,) = interpret(program, [A])
    except KernelFault:
        wanted = np.empty(0)
    kinds = set()
    for schedule in schedules_of(program):
        late = LateRun(program, [A], schedule=schedule)
        late.grid()
        kinds |= {hazard.kind for hazard in late.hazards.values()}
    different = 0
    for seed in range(RUNS):
        run = RandomRun(program, [A], seed=seed)
        try:
            run.grid()
        except KernelFault:
            different += 1
            continue
        different += not np.array_equal(run.written()[0], wanted, equal_nan=True)
    return kinds, different


def agree(text: str, shorter: Iterable[str] = ()) -> None:
    """A silent checker means one result; a report means that there are several. What is overwritten before
    anybody reads it shows in one of the ``shorter`` Programs.
    """
    kinds, different = judge(text)
    if kinds == {"uninitialised"}:  # poison is what everybody reads, whatever the order
        return
    if kinds:
        seen = different or any(judge(one)[1] for one in shorter)
        assert seen, f"{kinds} and all {RUNS} runs give the same:\n{text}"
    else:
        assert not different, f"no report, and {different} of {RUNS} runs differ:\n{text}"


STAGES = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.just("issue"), STAGES),
    st.tuples(st.just("commit")),
    st.tuples(st.just("wait"), st.integers(0, 2)),
    st.tuples(st.just("read"), STAGES),
    st.tuples(st.just("fill"), STAGES),
)


def copies(steps: list[tuple[object, ...]]) -> str:
    """A block that copies rows to three tiles, and adds up what it reads of them."""
    lines = ["fill(a, 0.0)", "fill(total, 0.0)"]
    for number, (kind, *values) in enumerate(steps):
        match kind:
            case "issue":
                lines += [
                    'with issue("cp_async"):',
                    f"    copy(A[{number}, :], a[{values[0]}, :])",
                ]
            case "commit":
                lines.append('commit_group(unit="cp_async")')
            case "wait":
                lines.append(f'wait_group({values[0]}, unit="cp_async")')
            case "read":
                lines.append(f"copy(a[{values[0]}, :], total[{number + 1}, :])")
            case _:
                lines.append(f"fill(a[{values[0]}, :], {-number - 1}.0)")
    last = ['commit_group(unit="cp_async")', 'wait_group(0, unit="cp_async")']
    lines += [*last, "copy(a, total[29 : +3, :])", "copy(total, C)"]
    body = "\n    ".join(lines)
    return f"""
def f(A: float32[16, 4], C: out.float32[32, 4]):
    a: shared.float32[3, 4]
    total: shared.float32[32, 4]

    {body}
"""


@given(st.lists(STEPS, min_size=3, max_size=14))
@CALM
def test_copies_and_waits_at_random(steps: list[tuple[object, ...]]) -> None:
    """Where the checker is silent, every run gives the synchronous result; where it reports, some do not."""
    agree(copies(steps), (copies(steps[:end]) for end in range(1, len(steps))))


def pipeline(  # noqa: PLR0913 - the parts of a pipeline, by keyword only
    *, stages: int, trips: int, free: str, full: str, slot: str, read: str, order: tuple[int, ...]
) -> str:
    """A role that brings rows to tiles, and one that doubles them; each part may be wrong."""
    producer = [
        f"wait_barrier(free[k % {stages}], {free})",
        f"arrive(full[k % {stages}], count=0, bytes=16)",
        f'with issue("tma", full[k % {stages}]):\n                    copy(A[k, :], a[{slot}, :])',
        f"arrive(full[k % {stages}])",
    ]
    consumer = [
        f"wait_barrier(full[j % {stages}], {full})",
        f"copy(a[{read}, :], C[j, :])",
        f"arrive(free[j % {stages}], count=64)",
    ]
    middle = "\n                ".join(consumer[i] for i in order)
    return f"""
def f(A: float32[16, 4], C: out.float32[8, 4]):
    threads(128)
    a: shared.float32[{stages}, 4]
    full: barrier[{", ".join(["1"] * stages)}]
    free: barrier[{", ".join(["64"] * stages)}]

    init_barrier(full)
    init_barrier(free)
    with roles:
        with role(0, 64):
            for k in serial({trips}):
                {(chr(10) + " " * 16).join(producer)}
        with role(64, 128):
            for j in serial({trips}):
                {middle}
"""


@given(
    stages=st.integers(1, 3),
    trips=st.integers(1, 8),
    free=st.sampled_from(["right", "right", "flipped", "0", "1"]),
    full=st.sampled_from(["right", "right", "flipped", "0", "1"]),
    slot=st.sampled_from([0, 0, 1]),
    read=st.sampled_from([0, 0, 1]),
    order=st.sampled_from([(0, 1, 2), (0, 1, 2), (0, 2, 1), (1, 0, 2), (0, 1), (1, 2)]),
)
@CALM
def test_pipelines_of_two_roles_at_random(  # noqa: PLR0913 - what is drawn
    stages: int, trips: int, free: str, full: str, slot: int, read: int, order: tuple[int, ...]
) -> None:
    """Wrong parities, stages and orders are reported exactly where they can change the result or hang."""
    parities = {
        "free": {"right": f"(k // {stages} + 1) % 2", "flipped": f"k // {stages} % 2"},
        "full": {"right": f"j // {stages} % 2", "flipped": f"(j // {stages} + 1) % 2"},
    }
    text = pipeline(
        stages=stages,
        trips=trips,
        free=parities["free"].get(free, free),
        full=parities["full"].get(full, full),
        slot=f"(k + {slot}) % {stages}",
        read=f"(j + {read}) % {stages}",
        order=order,
    )
    agree(text)
