"""What TileLang's own tests of its pipeline passes ask (``testing/python/transform``), asked of ours.

Each case names the test that it restates. Where ours decides otherwise, the case says why.
"""

import re
from dataclasses import dataclass

import pytest
from tests.passes.cases import (
    body_of,
    faults_of,
    is_pipelined,
    make_array,
    reasons_of,
    run_text,
    step_of,
)

from tileyard.ir.nodes import Tensor
from tileyard.ir.reader import read_program


@dataclass(frozen=True, kw_only=True)
class Case:
    """A loop with its declarations. ``planned`` and ``written`` are patterns of the planned and last Program.
    ``reasons`` are why the loop or a copy stays as it is; without any the loop is pipelined.
    """

    head: str
    loop: str
    planned: str = ""
    written: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The Program."""
        first, *rest = self.head.split("; ")
        lines = [f"def f({first}):", "    threads(32)", *(f"    {one}" for one in rest), ""]
        return (
            "\n".join([*lines, *(f"    {one}" for one in self.loop.strip("\n").splitlines())])
            + "\n"
        )


ROW = "A: float16[64], B: inout.float16[64], T: int32[4]; s: shared.float16[16]"
NO_COPIES = "not pipelined: none of its copies can be asynchronous"

CASES = {
    "before_after_copy_gemm_num_stages_plan": Case(
        head=(
            "A: float32[64, 32], B: float32[32, 64], C: out.float32[64, 64]; a: "
            "shared.float32[64, 8]; b: shared.float32[8, 64]; c: fragment.float32[64, 64]"
        ),
        loop="""
fill(c, 0.0)
for k in pipelined(4, stages=3):
    copy(A[:, k * 8 : +8], a)
    copy(B[k * 8 : +8, :], b)
    gemm(a, b, c)
copy(c, C)
""",
        planned=r"stage=\(0, 0, 0, 2, 2\)",
        written=r"for k in serial\(2\)",
    ),
    "before_after_copy_consumer_num_stages_plan": Case(
        head=ROW,
        loop="""
for i in pipelined(4, stages=2):
    copy(A[i * 16 : +16], s)
    copy(s, B[i * 16 : +16])
""",
        planned=r"stage=\(0, 0, 1, 1\)",
        written=r"copy\(s\[i % 2, :\], B\[i \* 16 : \+16\]\)",
    ),
    "schedules_guarded_body_after_replayable_bind_inline": Case(
        head=ROW,
        loop="""
for i in pipelined(4, stages=2):
    if i > 1:
        x = T[i] % 3
        copy(A[x * 16 : +16], s)
        copy(s, B[0 : +16])
""",
        written=r"if i \+ 1 > 1:\n +x_\d = T\[i \+ 1\] % 3\n +with issue",
    ),
    "recognizes_parallel_bufferstore_copy_stages": Case(
        head=ROW,
        loop="""
for i in pipelined(4, stages=3):
    for j in parallel(16):
        s[j] = A[i * 16 + j]
    copy(s, B[i * 16 : +16])
""",
        planned=r"copy\(A\[i \* 16 : \+16\], s\)",
    ),
    "stages_bind_with_dependent_copy": Case(
        head=ROW,
        loop="""
for i in pipelined(4, stages=2):
    x = T[i] % 3
    copy(A[x * 16 : +16], s)
    copy(s, B[0 : +16])
""",
        written=r"x_\d = T\[i \+ 1\] % 3\n +with issue",
    ),
    "accepts_explicit_bind_free_annotations": Case(
        head=ROW,
        loop="""
for i in pipelined(4, order=(1, 0), stage=(0, 1)):
    x = i * 16
    copy(A[x : +16], s)
    copy(s, B[x : +16])
""",
        written=r"for i in serial\(3\)",
    ),
    "keeps_bind_that_reads_pipeline_written_buffer": Case(
        head=ROW,
        loop="""
for i in pipelined(4, stages=2):
    x = i * 16
    copy(A[x : +16], s)
    v = s[0]
    B[x] = v
""",
        written=r"commit_group.*\n +x = i \* 16\n +v = s\[i % 2, 0\]",
    ),
    "keeps_bind_that_reads_atomic_target": Case(
        head="A: int32[4], C: inout.int32[1], D: out.int32[8]; s: shared.int32[1]",
        loop="""
for i in pipelined(4, stages=2):
    v = C[0]
    w = atomic_add(C[0], 1)
    copy(A[v % 4], s)
    D[i * 2] = w + s[0]
    D[i * 2 + 1] = v
""",
        reasons=(NO_COPIES, "not asynchronous: it depends on C, which the loop writes"),
    ),
    "rejects_side_effecting_replay_mask": Case(
        head="A: int32[4], C: inout.int32[1], D: out.int32[4]; s: shared.int32[1]",
        loop="""
for i in pipelined(4, stages=2):
    w = atomic_add(C[0], 1)
    copy(A[w % 4], s)
    D[i] = s[0]
""",
        reasons=(NO_COPIES, "not asynchronous: it depends on an atomic update"),
    ),
    "groups_multiple_copy_producers": Case(
        head=(
            "A: float32[4, 16], B: float32[4, 16], C: out.float32[4, 16]; a: shared.float32[16]; "
            "b: shared.float32[16]"
        ),
        loop="""
for i in pipelined(4, stages=2):
    copy(A[i, :], a)
    copy(B[i, :], b)
    for j in parallel(16):
        C[i, j] = a[j] + b[j]
""",
        written=r"wait_group\(0, .*\n +with issue.*\n.*\n +with issue.*\n.*\n +commit_group",
    ),
    "does_not_mark_non_cp_async_compatible_copy": Case(
        head="A: bfloat16[4, 16], C: out.float32[4, 16]; s: shared.float32[16]",
        loop="""
for i in pipelined(4, stages=2):
    copy(A[i, :], s)
    copy(s, C[i, :])
""",
        reasons=(NO_COPIES, "not asynchronous: it converts bfloat16 to float32"),
    ),
    # TileLang waits for one group less, because it issues in front of the wait: 3, then 2, 1, 0.
    "relaxes_loop_wait_and_descends_trailing_drain": Case(
        head="A: uint8[40], B: inout.uint8[40]; s: shared.uint8[4]",
        loop="""
for i in pipelined(5, stages=4):
    copy(A[i * 4 : +4], s)
    for j in serial(4):
        B[i * 4 + j] = s[j]
""",
        written=r"wait_group\(2, (.|\n)*unroll\(3\):\n +wait_group\(2 - i_last, ",
    ),
    "degenerate_pipeline_with_single_stage_is_not_expanded": Case(
        head="A: float16[4, 16], B: inout.float32[16]; x: fragment.float32[16]",
        loop="""
for k in pipelined(4, stages=2):
    for i in parallel(16):
        x[i] = float32(A[k, i])
    for j in parallel(16):
        B[j] = x[j]
""",
        reasons=(NO_COPIES,),
    ),
    "expands_annotated_layout": Case(
        head=(
            "A: float16[4, 8, 8], B: out.float16[4, 8, 8]; s: shared.float16[8, 8] = layout(i0, "
            "i1 ^ i0 // 2 * 2)"
        ),
        loop="""
for i in pipelined(4, stages=2):
    copy(A[i, :, :], s)
    copy(s, B[i, :, :])
""",
        written=r"s\[i % 2, :, :\]",
    ),
    "replays_readonly_bufferload_bind": Case(
        head=ROW,
        loop="""
for i in pipelined(4, stages=2):
    x = T[i] % 3 * 16
    copy(A[x : +16], s)
    copy(s, B[x : +16])
""",
        written=r"x_\d = T\[i \+ 1\] % 3 \* 16\n(.|\n)* x = T\[i\] % 3 \* 16\n +copy\(s",
    ),
    "replays_scalar_bind_dependencies": Case(
        head=ROW,
        loop="""
for i in pipelined(4, stages=2):
    x = i * 16
    y = x + 0 * T[0]
    copy(A[y : +16], s)
    copy(s, B[y : +16])
""",
        written=r"x_\d = \(i \+ 1\) \* 16\n +y_\d = x_\d \+ .*\n +with issue(.|\n)* x = i \* 16\n +y = x",
        reasons=(),
    ),
    # TileLang keeps the barriers among the late statements; here they stay with the order that the user gave.
    "before_after_mbarrier_arrive_wait_plan": Case(
        head="A: float16[64], B: inout.float16[64]; s: shared.float16[16]; m: barrier[1]",
        loop="""
init_barrier(m)
for i in pipelined(4, stages=2):
    copy(A[i * 16 : +16], s)
    arrive(m[0])
    wait_barrier(m[0], i % 2)
    copy(s, B[i * 16 : +16])
""",
        reasons=("not pipelined: it has asynchronous operations or synchronization of its own",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_of_tilelangs_is_planned_well(name: str) -> None:
    """As there, or as the case says; and the result and all waits are right."""
    case = CASES[name]
    steps = run_text(case.text)
    assert tuple(reasons_of(steps)) == case.reasons
    assert is_pipelined(steps[-1]) == (not case.reasons)
    assert re.search(case.planned, body_of(step_of(steps, "plan-pipeline")))
    assert re.search(case.written, body_of(steps[-1]))
    params = [param for param in read_program(case.text).params if isinstance(param, Tensor)]
    arrays = [
        make_array(param, number) for number, param in enumerate(params) if param.role != "out"
    ]
    assert faults_of(steps, arrays) == []
