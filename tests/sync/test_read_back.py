"""What TileLang's passes make of a kernel is a Program that means the same, or the check says otherwise."""

import importlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from tests.differential.conftest import kernels, load_module
from tests.differential.cuda_examples import EXAMPLES
from tests.samples import IS_WHOLE, sampled
from tests.sync.read_back import AS_WRITTEN, Loops, ReadBack, read_back

from tileyard.base.errors import UsageError
from tileyard.ir.nodes import CommitGroup, Copy, For, Gemm, Issue, Roles, WaitBarrier, WaitGroup
from tileyard.ir.walk import walk

__all__ = ["kernels"]

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
ARCHITECTURES = ("sm_80", "sm_90a")
SAMPLE = (
    *(("gemm, ragged", "sm_80"), ("gemm, ragged", "sm_90a"), ("attention", "sm_90a")),
    *(("paged decode", "sm_80"), ("persistent", "sm_80"), ("chunked", "sm_90a")),
    *(("int4 gemm", "sm_90a"), ("two stages", "sm_90a")),
)

SMALL = {
    "convolution": {"N": 1, "C": 32, "H": 6, "W": 6, "K": 2},
    "conv2d": {"h": 4, "w": 4, "c": 32, "kernel": 2, "padding": 0},
}
"""Sizes of what the interpreter is slow at: images that are laid out element by element."""

REFUSED = {"neighbours": "annotation cluster_dims", "with source": "call_extern softened"}
"""Kernels of which already the frontend says what it does not cover."""

DEADLOCKED = ("deadlocked",)

PASSES = (
    "BindTarget MaterializeKernelLaunch AnnotateDeviceBoundTmaCopies AddWrapperForSingleBufStore "
    "LegalizeNegativeIndex "
    "InjectAssumes Simplify CanonicalizeLegacyReducer VerifyReducerEpoch VerifyBufferInit "
    "{}LowerBlackwell2SM IfStmtBinding "
    "UnrollLoop Simplify PipelinePlanning InjectSoftwarePipeline Simplify"
)
ROLES = "AutoWarpSpecialization MaterializeWSSchedule ProducerConsumerWarpSpecialized "

Modules = Callable[[str], ModuleType]


@pytest.fixture(scope="session")
def plans() -> ModuleType:
    """Kernels that show what is assumed."""
    return load_module(FOLDER / "plans.py")


@pytest.fixture(scope="session")
def public() -> ModuleType:
    """Kernels of public reports."""
    return load_module(FOLDER / "public.py")


def is_pipelined(file: str, kernel: str) -> bool:
    """Whether the text of a kernel has a pipelined loop."""
    text = (FOLDER.parent / "kernels" / f"{file}.py").read_text(encoding="utf-8")
    found = re.search(rf"^def {kernel}\(.*?(?=^def |\Z)", text, re.MULTILINE | re.DOTALL)
    return found is not None and "T.Pipelined" in found[0]


PIPELINED = [
    name
    for name, one in EXAMPLES.items()
    if name not in (*REFUSED, *DEADLOCKED) and is_pipelined(one.file, one.kernel)
]


def cases() -> list[tuple[str, str, int | None]]:
    """A sample, or every kernel: as it is, and with each number of stages where it has a pipelined loop."""
    if not IS_WHOLE:
        return [(name, architecture, None) for name, architecture in SAMPLE]
    stages = (None, *range(6))
    return [
        (name, architecture, depth)
        for name, example in EXAMPLES.items()
        if name not in (*REFUSED, *DEADLOCKED)
        for architecture in ARCHITECTURES
        for depth in (stages if name in PIPELINED else stages[:1])
    ]


def run(modules: Modules, name: str, architecture: str, loops: Loops = AS_WRITTEN) -> ReadBack:
    """Read an example back."""
    example = EXAMPLES[name]
    example = replace(example, arguments={**example.arguments, **SMALL.get(name, {})})
    kernel = getattr(modules(example.file), example.kernel)
    return read_back(kernel, dict(example.arguments), architecture, dict(example.numbers), loops)


def run_loops(modules: Modules, name: str, architecture: str, loops: Loops) -> list[str]:
    """What is wrong with an example's plan, except ``triangle``'s mistake (plans.py) in ``backward``."""
    done = run(modules, name, architecture, loops)
    is_known = (name, architecture) == ("backward", "sm_80") and (loops.stages or 0) > 1
    faults = [done.refusal] if done.refusal else [] if done.are_equal else ["another result"]
    for one in done.findings:
        is_unwaited = one.fix.startswith("no wait comes between")
        if not (is_known and is_unwaited and one.kind == "read before arrival"):
            faults.append(f"{one.kind}: {one.message}")
    return faults


@pytest.mark.parametrize(("name", "architecture", "stages"), cases())
def test_a_plan_means_what_is_written(
    kernels: Modules, name: str, architecture: str, stages: int | None
) -> None:
    """Both forms give the same, bit by bit, and no dependence and no wait is wrong."""
    assert run_loops(kernels, name, architecture, Loops(stages=stages)) == []


@pytest.mark.timeout(
    3600
)  # two minutes of CPU time for an image that is laid out element by element
@pytest.mark.parametrize("stages", range(6) if IS_WHOLE else (3,))
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", PIPELINED if IS_WHOLE else ["chunked"])
def test_any_number_of_iterations_means_what_is_written(
    kernels: Modules, name: str, architecture: str, stages: int
) -> None:
    """For 0 to 9 iterations and each number of stages, in the first block."""
    found = {}
    for trips in range(10) if IS_WHOLE else (0, 2):
        loops = Loops(stages=stages, trips=trips)
        found[trips] = run_loops(kernels, name, architecture, loops)
    assert {trips: faults for trips, faults in found.items() if faults} == {}


@pytest.mark.parametrize(("name", "operation"), REFUSED.items())
def test_what_is_not_covered_is_named(kernels: Modules, name: str, operation: str) -> None:
    """A plan is refused as the kernel itself is."""
    assert run(kernels, name, "sm_90a").refusal.startswith(f"{operation} is not covered at ")


@pytest.mark.parametrize(("architecture", "roles"), [("sm_80", ""), ("sm_90a", ROLES)])
def test_the_passes_that_run_are_known(kernels: Modules, architecture: str, roles: str) -> None:
    """A TileLang that plans with other passes, or in another order, is noticed."""
    planning = importlib.import_module("tileyard.frontend.pipelined")
    tvm = importlib.import_module("tilelang").tvm
    func = kernels("gemm").gemm.get_tir(M=64, N=64, K=64)
    _, ran = planning.run_prefix(
        func, tvm.target.Target({"kind": "cuda", "arch": architecture}), {}
    )
    assert [name.rpartition(".")[2] for name in ran] == PASSES.format(roles).split()


def test_options_of_the_kernel_count(kernels: Modules) -> None:
    """A kernel that turns warp specialization off is planned without roles."""
    planning = importlib.import_module("tileyard.frontend.pipelined")
    lower = importlib.import_module("tileyard.frontend.tilelang").lower_prim_func
    func = kernels("gemm").gemm.get_tir(M=64, N=64, K=64)
    for options, has_roles in (({}, True), ({"tl.disable_warp_specialized": True}, False)):
        program = lower(planning.plan(func, "sm_90a", options)).written
        assert any(isinstance(stmt, Roles) for stmt in walk(program.body)) == has_roles


@pytest.mark.parametrize(
    ("architecture", "options", "said"),
    [
        ("sm_xx", {}, "there is no architecture 'sm_xx'"),
        ("sm_80", {"tl.no_such_option": 1}, "TileLang cannot plan main: "),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(
    kernels: Modules, architecture: str, options: dict[str, int], said: str
) -> None:
    """An architecture or an option that TileLang does not have."""
    planning = importlib.import_module("tileyard.frontend.pipelined")
    func = kernels("gemm").gemm.get_tir(M=64, N=64, K=64)
    with pytest.raises(UsageError) as caught:
        planning.plan(func, architecture, options)
    assert caught.value.message.startswith(said)
    assert "\n" not in caught.value.message


def test_a_kernel_for_a_cpu_has_no_plan(plans: ModuleType) -> None:
    """It names its target itself."""
    found = importlib.import_module("tileyard.frontend.discover").find_kernels(plans)["on_a_cpu"]
    lower = importlib.import_module("tileyard.frontend.found").lower_config
    assert lower(found, {"N": 4}, {}).lowered is not None
    with pytest.raises(UsageError, match="the target of the kernel is a CPU; only plans for CUDA"):
        lower(found, {"N": 4}, {}, pipeline="tilelang:sm_80")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_statements_keep_their_lines(kernels: Modules, architecture: str) -> None:
    """Copies of a statement have its line, what TileLang has put in that of the loop."""
    planned = read_back(kernels("gemm").gemm, {"M": 64, "N": 64, "K": 128}, architecture).planned
    assert planned is not None
    text = (FOLDER.parent / "kernels" / "gemm.py").read_text(encoding="utf-8").splitlines()
    words = {
        Issue: ("T.copy(A", "T.copy(B"),
        Gemm: ("T.gemm(",),
        For: ("T.Pipelined(",),
        CommitGroup: ("T.Pipelined(",),
        WaitGroup: ("T.Pipelined(",),
        WaitBarrier: ("T.Pipelined(",),
    }
    seen = set()
    for number, stmt in enumerate(walk(planned.written.body)):
        if type(stmt) in words:
            line = text[planned.written_lines[number].line - 1]
            assert any(word in line for word in words[type(stmt)])
            seen.add(type(stmt))
    assert seen >= {Issue, Gemm, For}


# ---- what TileLang inserts later is assumed: docs/design/async.md has a row for each ----------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_plain_copies_are_assumed_to_be_over(plans: ModuleType, architecture: str) -> None:
    """TileLang has them wait, also where TMA carries them out."""
    done = read_back(plans.through_tile, {"N": 64}, architecture)
    assert done.planned is not None
    assert (done.are_equal, done.findings) == (True, ())
    kinds = [type(stmt) for stmt in walk(done.planned.written.body)]
    assert kinds.count(Copy) == 2
    assert Issue not in kinds


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_copies_that_convert_are_assumed_to_be_over(plans: ModuleType, stages: int) -> None:
    """No unit of the hardware can do them, although TileLang commits them."""
    done = read_back(plans.converted, {"N": 4, "stages": stages}, "sm_80")
    assert done.planned is not None
    assert (done.are_equal, done.findings) == (True, ())
    assert not any(isinstance(stmt, Issue) for stmt in walk(done.planned.written.body))


@pytest.mark.parametrize(
    ("architecture", "stages"),
    sampled([(a, n) for a in ARCHITECTURES for n in (2, 3)], [("sm_80", 3), ("sm_90a", 2)]),
)
def test_elements_that_are_gathered_are_copied_asynchronously(
    plans: ModuleType, architecture: str, stages: int
) -> None:
    """A parallel loop whose commits and waits are statements of their own."""
    done = read_back(plans.gathered, {"N": 5, "stages": stages}, architecture)
    assert done.planned is not None
    assert (done.are_equal, done.findings) == (True, ())
    issued = [stmt for stmt in walk(done.planned.written.body) if isinstance(stmt, Issue)]
    assert {type(one.body[0]) for one in issued} == {For}
    lines = list(done.planned.written_lines)
    assert lines == list(range(len(list(walk(done.planned.written.body)))))


@pytest.mark.parametrize(
    ("architecture", "stages"),
    sampled([(a, n) for a in ARCHITECTURES for n in (1, 2, 3)], [("sm_80", 3), ("sm_90a", 2)]),
)
def test_a_fence_in_front_of_roles_is_assumed(
    plans: ModuleType, architecture: str, stages: int
) -> None:
    """A tile that all threads write may be filled by TMA in a role."""
    done = read_back(plans.cleared, {"N": 4, "stages": stages}, architecture)
    assert (done.are_equal, done.findings) == (True, ())


@pytest.mark.parametrize("name", ["gemm", "attention"])
def test_bytes_and_arrivals_of_loads_are_assumed(kernels: Modules, name: str) -> None:
    """A load expects its own bytes; the last one of a stage arrives, once."""
    done = run(kernels, name, "sm_90a")
    assert done.planned is not None
    assert done.findings == ()
    units = {stmt.unit for stmt in walk(done.planned.written.body) if isinstance(stmt, Issue)}
    assert units == {"tma"}


# ---- plans that are wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["atomic_then_read", "store_then_read", "read_then_refill"])
def test_reordered_dependences_are_found(public: ModuleType, name: str, architecture: str) -> None:
    """What TileLang 0.1.15 still reorders: on sm_80 the last one has no wait left, instead."""
    done = read_back(getattr(public, name), dict(public.ARGUMENTS[name]), architecture)
    kinds = {finding.kind for finding in done.findings}
    is_unwaited = (name, architecture) == ("read_then_refill", "sm_80")
    assert ("read before arrival" if is_unwaited else "dependence reordered") in kinds
    text = (FOLDER / "public.py").read_text(encoding="utf-8").splitlines()
    wanted = "read before arrival" if is_unwaited else "dependence reordered"
    lines = {f.access.line for f in done.findings if f.kind == wanted and f.access is not None}
    assert any("# here" in text[line - 1] for line in lines)


@pytest.mark.parametrize(("stages", "kinds"), [(1, []), (2, []), (3, ["read before arrival"])])
def test_waits_that_are_left_out_are_found(
    plans: ModuleType, stages: int, kinds: list[str]
) -> None:
    """TileLang 0.1.15 forgets those of the last steps of a loop that does not begin at 0."""
    done = read_back(plans.triangle, {"N": 4, "stages": stages}, "sm_80")
    assert [finding.kind for finding in done.findings] == kinds
    text = (FOLDER / "plans.py").read_text(encoding="utf-8").splitlines()
    for finding in done.findings:
        assert finding.other is not None
        assert "# the copy" in text[finding.other.line - 1]


@pytest.mark.parametrize(("architecture", "is_right"), [("sm_80", True), ("sm_90a", False)])
def test_a_role_that_fills_what_the_other_still_reads_is_found(
    plans: ModuleType,
    architecture: str,
    is_right: bool,
) -> None:
    """TileLang 0.1.15 lets the copies begin although the tile is read before the loop."""
    done = read_back(plans.seeded, {"N": 4, "stages": 2}, architecture)
    kinds = {finding.kind for finding in done.findings}
    wanted = {"dependence reordered", "overwritten before release"}
    assert (kinds == set()) if is_right else (kinds >= wanted)


@pytest.mark.parametrize(("architecture", "is_right"), [("sm_80", False), ("sm_90a", True)])
def test_a_sum_that_is_taken_for_a_copy_is_found(
    plans: ModuleType, architecture: str, is_right: bool
) -> None:
    """TileLang 0.1.15 moves a loop that copies ahead as a whole, and marks all loops in it as copies."""
    done = read_back(plans.repeated, {"N": 5, "stages": 3}, architecture)
    assert done.refusal == ""
    assert done.are_equal == is_right
    text = (FOLDER / "plans.py").read_text(encoding="utf-8").splitlines()
    found = {one.access.line for one in done.findings if one.access is not None}
    assert any("# the use" in text[line - 1] for line in found) != is_right


@pytest.mark.parametrize(("steps", "is_right"), [(3, True), (4, False)])
def test_a_version_that_is_not_the_last_one_is_found(
    plans: ModuleType, steps: int, is_right: bool
) -> None:
    """TileLang 0.1.15 reads the first version behind the loop: right with 2 stages after odd steps only."""
    done = read_back(plans.reread, {"N": steps, "stages": 2}, "sm_80")
    assert done.are_equal == is_right
    assert [finding.kind for finding in done.findings] == ["dependence reordered"] * (not is_right)


@pytest.mark.parametrize("with_bias", [False, True])
def test_a_schedule_of_roles_is_read_back(plans: ModuleType, with_bias: bool) -> None:
    """TileLang trusts it: what no pipeline of the schedule passes on, nothing orders."""
    done = read_back(plans.scheduled, {"N": 4, "with_bias": with_bias}, "sm_90a")
    assert done.planned is not None
    assert sum(isinstance(stmt, Roles) for stmt in walk(done.planned.written.body)) == 1
    text = (FOLDER / "plans.py").read_text(encoding="utf-8").splitlines()
    found = {
        (one.kind, text[one.access.line - 1].partition("# ")[2])
        for one in done.findings
        if one.access
    }
    expected = {
        ("race", "the read"),
        ("overwritten before release", "the write"),
        ("dependence reordered", "the read"),
    }
    assert found == (expected if with_bias else set())


def test_what_tilelang_itself_refuses_is_said(plans: ModuleType) -> None:
    """With its reason."""
    done = read_back(plans.reread, {"N": 4, "stages": 2}, "sm_90a")
    assert done.refusal.startswith("TileLang cannot plan main: ")
    assert "Versioned buffer load escaped pipeline stage context" in done.refusal
