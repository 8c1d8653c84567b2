"""Asynchronous copies of TileLang kernels: what the frontend keeps of them, and which mistakes are seen."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from tests.conftest import ROOT
from tests.sync.conftest import PIPELINES
from tests.sync.mutants import mutants

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.clock import Clock
from tileyard.base.errors import UnsupportedError
from tileyard.base.model import Kernel, Outcome
from tileyard.ir.hazard_kinds import HazardKind
from tileyard.ir.hazard_records import Hazard
from tileyard.ir.hazards import LateRun
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.nodes import CommitGroup, Issue, WaitGroup
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.trace import TracedRun
from tileyard.ir.walk import walk
from tileyard.sync.blocks import check_program
from tileyard.workers.protocol import CheckSync, Failed, SyncChecked
from tileyard.workers.sync_check import check_made

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

pytestmark = pytest.mark.slow

Lower = Callable[..., "Lowered"]
SOURCE = PIPELINES.read_text(encoding="utf-8")
ARGUMENTS = {
    "gemm": {"M": 32, "N": 16, "K": 96},
    "scale": {"N": 96},
    "permute": {"N": 16},
}


def arrays_of(kernel: str) -> list[np.ndarray]:
    """Inputs of a kernel, the same every time."""
    rng = np.random.default_rng(3)
    if kernel == "gemm":
        return [rng.standard_normal(shape).astype(np.float16) for shape in ((32, 96), (96, 16))]
    if kernel == "permute":
        return [rng.standard_normal((16, 16)).astype(np.float32), rng.permutation(16).astype("i4")]
    return [rng.standard_normal(96).astype(np.float32)]


def find_hazards(lowered: "Lowered", kernel: str) -> list[Hazard]:
    """The hazards of a run in which everything arrives as late as it may."""
    run = LateRun(lowered.written, arrays_of(kernel))
    run.grid()
    return list(run.hazards.values())


class SlowClock(Clock):
    """Each look at it is a minute later."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        """A minute later."""
        self.now_s += 60.0
        return self.now_s


def line_of(text: str, words: str, after: str) -> int:
    """The number of the first line with ``words`` behind the one with ``after``."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if after in line)
    return next(number for number, line in enumerate(lines[start:], start + 1) if words in line)


@pytest.mark.parametrize("kernel", ARGUMENTS)
def test_a_correct_pipeline_is_silent(lower: Lower, kernel: str) -> None:
    """Settled, done at once, and as late as possible, it gives the same."""
    lowered = lower(SOURCE, kernel, **ARGUMENTS[kernel])
    assert lowered.given_up == ()
    run = LateRun(lowered.written, arrays_of(kernel))
    run.grid()
    assert run.hazards == {}
    (settled,) = interpret_lanes(lowered.program, arrays_of(kernel))
    (at_once,) = interpret_lanes(lowered.written, arrays_of(kernel))
    (late,) = run.written()
    np.testing.assert_array_equal(settled, late)
    np.testing.assert_array_equal(at_once, late)


def test_rows_by_number_are_copied(lower: Lower) -> None:
    """As NumPy picks them."""
    rows, order = arrays_of("permute")
    (found,) = interpret_lanes(
        lower(SOURCE, "permute", **ARGUMENTS["permute"]).program, [rows, order]
    )
    np.testing.assert_array_equal(found, rows[order])


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("T.mbarrier_wait_parity(full, k % 2)", "pass", "read before arrival"),
        ("wait_parity(full, k % 2)", "wait_parity(full, (k + 1) % 2)", "read before arrival"),
        ("T.tma_store_wait(0)", "pass", "source changed in flight"),
        ('_bytes(BLOCK, "float32")', '_bytes(BLOCK, "float64")', "bytes"),
        ("                    T.barrier_arrive(full)\n", "", "deadlock"),
    ],
)
def test_a_mistake_around_rows_is_seen(
    lower: Lower, before: str, after: str, kind: HazardKind
) -> None:
    """Each is a copy by TMA like others, but for its bytes, which the kernel states."""
    text = SOURCE.replace(before, after)
    assert text != SOURCE
    lowered = lower(text, "permute", **ARGUMENTS["permute"])
    assert kind in {hazard.kind for hazard in find_hazards(lowered, "permute")}


EQUIVALENT = {
    (
        "move",
        "mbarrier_expect_tx",
    ): "the phase goes on until the arrive, whichever bytes come first",
    ("double", "mbarrier_wait_parity"): "the phase after it does not end before the next arrive",
    ("double", "tma_store_arrive"): "the wait covers all groups, also an empty one",
    ("double", "tma_store_wait"): "nothing has been started between the two",
}
"""Mutants of the kernel that copies rows that give what it gives, and why."""


def test_mutants_around_rows_are_found_or_equivalent(lower: Lower) -> None:
    """All of them; a tile of fewer rows TileLang refuses."""
    silent = set()
    for mutant in mutants(SOURCE, "permute"):
        if mutant.operator != "shrink":
            lowered = lower(mutant.text, "permute", **ARGUMENTS["permute"])
            if not find_hazards(lowered, "permute"):
                called = mutant.statement.removeprefix("T.").partition("(")[0]
                silent.add((mutant.operator, called))
    assert silent == EQUIVALENT.keys()


THREADS = """
import tilelang
import tilelang.language as T

@tilelang.jit(out_idx=[1])
def pairs(N):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=256) as _:
            a = T.alloc_shared((128,), "float32")
            full = T.alloc_barrier(128)
            tx = T.get_thread_binding()
            if tx < 128:
                a[tx] = X[tx]
                T.barrier_arrive(full)
            else:
                T.barrier_wait(full, 0)
                Y[tx - 128] = a[(tx - 128) // 2]
    return main
"""


@pytest.mark.parametrize(
    ("written", "is_race"),
    [("a[tx] = X[tx]", False), ("a[tx // 2] = X[tx]", True), ("a[tx // 2] = X[tx // 2]", False)],
)
def test_threads_of_a_role_that_write_one_element_are_found(
    lower: Lower, written: str, is_race: bool
) -> None:
    """With the line, the role and two of the threads; not if they write the same."""
    text = THREADS.replace("a[tx] = X[tx]", written)
    lowered = lower(text, "pairs", N=128)
    checked = check_program(
        lowered.written, lowered.written_lines, [np.arange(128, dtype=np.float32)]
    )
    found = [one for one in checked.findings if one.kind == "race"]
    assert len(found) == is_race
    for race in found:
        assert race.access is not None
        assert race.access.line == line_of(text, written, "def main(")
        assert race.roles == (1, 1)
        assert race.message.startswith("a is accessed at tx=0, and nothing orders that after ")


def test_a_kernel_of_the_examples_is_silent(lower: Lower) -> None:
    """The one that waits for its copies in groups."""
    text = (ROOT / "tests" / "kernels" / "splitting.py").read_text(encoding="utf-8")
    lowered = lower(text, "async_gemm", M=64, N=64, K=64, block=32)
    run = LateRun(lowered.written, [np.ones((64, 64), np.float16)] * 2)
    run.grid()
    assert run.hazards == {}
    np.testing.assert_array_equal(run.written()[0], np.full((64, 64), 64))


@pytest.mark.parametrize("kernel", ["gemm", "scale"])
def test_what_is_kept_survives_text_and_has_lines(lower: Lower, kernel: str) -> None:
    """Every statement, kept or settled, has the line of the operation that it comes from."""
    lowered = lower(SOURCE, kernel, **ARGUMENTS[kernel])
    assert read_program(print_program(lowered.written)) == lowered.written
    kinds = {type(stmt) for stmt in walk(lowered.written.body)}
    assert {Issue, CommitGroup, WaitGroup} <= kinds
    assert kinds.isdisjoint({type(stmt) for stmt in walk(lowered.program.body)} & {Issue})
    for program, lines in (
        (lowered.program, lowered.lines),
        (lowered.written, lowered.written_lines),
    ):
        numbered = [number for number in lines if number >= 0]  # others are of allocations
        assert numbered == list(range(len(list(walk(program.body)))))
    source = SOURCE.splitlines()
    numbered = enumerate(walk(lowered.written.body))
    waits = [
        lowered.written_lines[number] for number, stmt in numbered if isinstance(stmt, WaitGroup)
    ]
    assert all("ptx_wait_group" in source[where.line - 1] for where in waits)


def test_groups_of_single_threads_are_given_up(lower: Lower) -> None:
    """What a block cannot say as a whole is not guessed: it is named, and the result is the same."""
    text = SOURCE.replace(
        "                T.ptx_wait_group(1)\n                for i in T.Parallel(BLOCK):\n",
        "                for i in T.Parallel(BLOCK):\n                    T.ptx_wait_group(1)\n",
    )
    lowered = lower(text, "scale", **ARGUMENTS["scale"])
    (given_up,) = lowered.given_up
    assert given_up.message == "ptx_wait_group by single threads is not checked"
    assert given_up.where is not None
    assert given_up.where.line == line_of(text, "ptx_wait_group", "def scale")
    assert lowered.program == lower(SOURCE, "scale", **ARGUMENTS["scale"]).program


def test_only_copies_to_shared_memory_are_asynchronous(lower: Lower) -> None:
    """As TileLang says it."""
    text = SOURCE.replace(
        "T.copy(c, C[by * BLOCK, bx * BLOCK])", "T.async_copy(c, C[0:BLOCK, 0:BLOCK])"
    )
    with pytest.raises(
        UnsupportedError, match="cp_async copies from global memory, and c is fragment"
    ):
        lower(text, "gemm", **ARGUMENTS["gemm"])


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One planted mistake: in ``kernel``, ``before`` becomes ``after``. ``access`` and ``issue`` are words in
    the lines that the first hazard of ``kind`` names, found behind the line with ``inside``; ``most`` is the
    count that a wait may leave before the access.
    """

    kernel: str
    before: str
    after: str
    kind: HazardKind
    access: str
    issue: str
    inside: tuple[str, str] = ("in T.serial(steps)", "in T.serial(2)")
    most: int | None = None


_PREFETCH = ("in T.serial(steps)", "k + 2 < steps")
MISTAKES = {
    "gemm, count too large by one": Mistake(
        kernel="gemm",
        before="T.ptx_wait_group(2)",
        after="T.ptx_wait_group(3)",
        kind="read before arrival",
        access="T.gemm(",
        issue="T.async_copy(",
        inside=("in T.serial(steps)", "a[p, :, :]"),
        most=4,
    ),
    "gemm, last wait too large": Mistake(
        kernel="gemm",
        before="T.ptx_wait_group(0)",
        after="T.ptx_wait_group(1)",
        kind="read before arrival",
        access="T.gemm(",
        issue="T.async_copy(",
        inside=("in T.serial(steps)", "a[(k + 2) % 3, :, :]"),
        most=0,
    ),
    "gemm, no wait": Mistake(
        kernel="gemm",
        before="T.ptx_wait_group(2)",
        after="pass",
        kind="read before arrival",
        access="T.gemm(",
        issue="T.async_copy(",
        most=5,
    ),
    "gemm, reads the next stage": Mistake(
        kernel="gemm",
        before="T.gemm(a[k % 3",
        after="T.gemm(a[(k + 1) % 3",
        kind="read before arrival",
        access="T.gemm(",
        issue="T.async_copy(",
    ),
    "gemm, copies to the stage that is read": Mistake(
        kernel="gemm",
        before="a[(k + 2) % 3, :, :],",
        after="a[k % 3, :, :],",
        kind="read before arrival",
        access="T.gemm(",
        issue="T.async_copy(",
        inside=_PREFETCH,
    ),
    "gemm, copies to the stage before": Mistake(
        kernel="gemm",
        before="a[(k + 2) % 3, :, :],",
        after="a[(k + 1) % 3, :, :],",
        kind="overwritten in flight",
        access="T.async_copy(",
        issue="T.async_copy(",
        inside=("k + 2 < steps", "in T.serial(2)"),
    ),
    "scale, count too large by one": Mistake(
        kernel="scale",
        before="T.ptx_wait_group(1)",
        after="T.ptx_wait_group(2)",
        kind="read before arrival",
        access="Y[",
        issue="T.ptx_cp_async(",
        most=1,
    ),
    "scale, no wait": Mistake(
        kernel="scale",
        before="T.ptx_wait_group(1)",
        after="pass",
        kind="read before arrival",
        access="Y[",
        issue="T.ptx_cp_async(",
        most=1,
    ),
    "scale, no commit before the loop": Mistake(
        kernel="scale",
        before="                T.ptx_commit_group()\n            for k",
        after="            for k",
        kind="read before arrival",
        access="Y[",
        issue="T.ptx_cp_async(",
    ),
    "scale, commits only what it copies": Mistake(
        kernel="scale",
        before="                        )\n                T.ptx_commit_group()\n\n",
        after="                        )\n                    T.ptx_commit_group()\n\n",
        kind="read before arrival",
        access="Y[",
        issue="T.ptx_cp_async(",
        inside=_PREFETCH,
    ),
    "scale, reads two stages on": Mistake(
        kernel="scale",
        before="x[k % 3, i] *",
        after="x[(k + 1) % 3, i] *",
        kind="read before arrival",
        access="Y[",
        issue="T.ptx_cp_async(",
    ),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_planted_mistake_is_found(lower: Lower, name: str) -> None:
    """With the lines of both sides, and the count that a wait may have."""
    mistake = MISTAKES[name]
    start = SOURCE.index(f"def {mistake.kernel}(")
    head, tail = SOURCE[:start], SOURCE[start:]
    assert tail.count(mistake.before) == 1
    text = head + tail.replace(mistake.before, mistake.after)
    lowered = lower(text, mistake.kernel, **ARGUMENTS[mistake.kernel])
    hazards = find_hazards(lowered, mistake.kernel)
    inside, around = mistake.inside
    access = line_of(text[start:], mistake.access, inside) + head.count("\n")
    issue = line_of(text[start:], mistake.issue, around) + head.count("\n")
    found = {
        (
            hazard.kind,
            lowered.written_lines[hazard.access.number].line,
            lowered.written_lines[hazard.other.number].line,
        ): hazard
        for hazard in reversed(hazards)
    }
    assert (mistake.kind, access, issue) in found
    hazard = found[mistake.kind, access, issue]
    assert mistake.most is None or hazard.most == mistake.most


def test_lines_of_mistakes_do_not_depend_on_the_text(lower: Lower) -> None:
    """A comment above moves both sides by one line, and nothing else."""
    text = SOURCE.replace("T.ptx_wait_group(1)", "T.ptx_wait_group(2)")
    found = []
    for shift, source in enumerate(
        (text, re.sub(r"^BLOCK", "# moved\nBLOCK", text, flags=re.MULTILINE))
    ):
        lowered = lower(source, "scale", **ARGUMENTS["scale"])
        lines = lowered.written_lines
        hazards = find_hazards(lowered, "scale")
        found.append([lines[hazard.access.number].line - shift for hazard in hazards])
    assert found[0] == found[1]


def test_what_a_check_found_is_kept_by_content(
    lower: Lower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the same Program, lines and time limit no block runs again, also if the time was too short."""
    from tileyard.frontend.tilelang import MadeKernel

    lowered = lower(SOURCE, "scale", N=96)
    objects = ObjectStore(tmp_path / "objects")
    made = MadeKernel(
        kernel=Kernel(name="scale"), signature=lowered.program, lines={}, lowered=lowered
    )
    request = CheckSync(kernel="scale", arguments={}, config={})
    short = msgspec.structs.replace(request, limit_s=60.0)
    failed = check_made(made, short, objects, SlowClock())
    assert isinstance(failed, Failed)
    assert failed.outcome is Outcome.TIMEOUT
    first = check_made(made, request, objects)
    assert isinstance(first, SyncChecked)
    assert (first.blocks, first.findings) == (1, ())
    with monkeypatch.context() as patched:
        patched.setattr("tileyard.workers.sync_check.check_program", None)
        assert check_made(made, request, objects) == first
        assert check_made(made, short, objects) == failed
    other = msgspec.structs.replace(short, recipe="another")
    assert check_made(made, other, objects) == first


def test_a_trace_has_the_steps_before_a_hazard(lower: Lower) -> None:
    """Of roles and what works for them, with the lines of the statements, and only if asked for."""
    text = (ROOT / "tests" / "kernels" / "roles.py").read_text(encoding="utf-8")
    wrong = text.replace("full[k % 2], k // 2 % 2)", "full[k % 2], (k // 2 + 1) % 2)")
    assert wrong != text
    lowered = lower(wrong, "gemm_two_stages", M=64, N=64, K=128)
    inputs = [np.ones((64, 128), np.float16), np.ones((128, 64), np.float16)]
    run = TracedRun(lowered.written, inputs, is_traced=True)
    run.grid()
    key, steps = next(iter(run.traces.items()))
    hazard = run.hazards[key]
    own = [(one.role, one.text) for one in steps if one.buffer in ("", hazard.buffer)]
    assert own[0] == (1, "wait free[0] p1")
    assert (1, "issue tma A_shared[0]") in own
    assert own[-2:] == [(2, "wait full[0] p1"), (2, "issue wgmma")]
    waits = {
        lowered.written_lines[one.moment.number].line
        for steps in run.traces.values()
        for one in steps
        if one.text.startswith("wait free")
    }
    assert waits == {line_of(text, "barrier_wait(free", "def gemm_two_stages")}
    silent = TracedRun(lowered.written, inputs)
    silent.grid()
    assert (silent.hazards.keys(), silent.traces) == (run.hazards.keys(), {})


SHARED_BY_ROLES = """
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1, 2])
def shared_by_roles():
    @T.prim_func
    def main(
        A: T.Tensor((16, 16), "float16"),
        C: T.Tensor((16, 16), "float32"),
        D: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, threads=256) as _:
            a = T.alloc_shared((16, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            d = T.alloc_fragment((16, 16), "float32")
            full = T.alloc_barrier(arrive_count=128)
            with T.ws(0):
                T.copy(A, a)
                T.wgmma_gemm(a, a, c, clear_accum=True)
                T.barrier_arrive(full)
                T.wait_wgmma(0)
                T.copy(c, C)
            with T.ws(1):
                T.barrier_wait(full, 0)
                T.wgmma_gemm(a, a, d, clear_accum=True)
                T.wait_wgmma(0)
                T.copy(d, D)

    return main
"""
_OWN = "                T.wgmma_gemm(a, a, c, clear_accum=True)\n"
_SAID = "                T.barrier_arrive(full)\n"


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (_OWN, _OWN, set()),
        (_OWN + _SAID, _SAID + _OWN, {"missing fence"}),
        ("T.copy(A, a)\n" + _OWN, _OWN.lstrip() + _OWN[:16] + "T.copy(A, a)\n", {"missing fence"}),
    ],
    ids=["in front of the arrival", "behind it", "in front of the write"],
)
def test_a_role_that_multiplies_what_it_wrote_has_fenced_it(
    lower: Lower, before: str, after: str, kinds: set[str]
) -> None:
    """TileLang puts the fence there, so another role that hears of it later may multiply it, too."""
    assert before in SHARED_BY_ROLES
    lowered = lower(SHARED_BY_ROLES.replace(before, after), "shared_by_roles")
    run = LateRun(lowered.written, [np.ones((16, 16), np.float16)])
    run.grid()
    assert kinds == {one.kind for one in run.hazards.values()} & {"missing fence", "race"}


GATHERED = """
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1])
def gathered():
    @T.prim_func
    def main(X: T.Tensor((16, 16), "float32"), Y: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_shared((16, 16), "float32")
            own = {"parallel_async_without_async_commit_wait": True}
            for i, j in T.Parallel(16, 16, annotations=own):
                x[i, j] = X[15 - i, j]
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.copy(x, Y)

    return main
"""


@pytest.mark.parametrize(("left", "kinds"), [(0, set()), (1, {"read before arrival"})])
def test_a_parallel_loop_may_issue_its_elements(lower: Lower, left: int, kinds: set[str]) -> None:
    """Whose commit and wait are written apart."""
    text = GATHERED.replace("wait_group(0)", f"wait_group({left})")
    lowered = lower(text, "gathered")
    run = LateRun(lowered.written, [np.ones((16, 16), np.float32)])
    run.grid()
    assert kinds == {one.kind for one in run.hazards.values()}


def test_a_parallel_loop_issues_nothing_but_copies(lower: Lower) -> None:
    """Another loop that TileLang would have to split is refused by name."""
    text = GATHERED.replace("X[15 - i, j]", "X[15 - i, j] * 2.0")
    with pytest.raises(UnsupportedError, match="loop with parallel_async_without_async_commit"):
        lower(text, "gathered")
