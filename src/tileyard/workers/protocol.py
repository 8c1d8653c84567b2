"""Defines the messages between engine and workers: length-prefixed msgpack of these records."""

from typing import Generic, Literal, TypeVar, get_args

import msgspec

from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.manifest import Build
from tileyard.base.errors import ToolMissingError
from tileyard.base.model import (
    USUAL_DRAW,
    WHOLE,
    Batch,
    BuildKey,
    CheckPolicy,
    Device,
    Diagnostic,
    Digest,
    Draw,
    Elaborated,
    GoldenKey,
    GoldenPart,
    HotRun,
    Measurement,
    Mismatch,
    Outcome,
    Record,
    Rule,
    SourceLine,
    Step,
    TensorSpec,
    TimingPolicy,
    Tolerance,
    Value,
    Values,
)
from tileyard.frontend.declare import KernelInfo
from tileyard.look.records import Look
from tileyard.sync.findings import Allowed, BlockSpan, Finding, Suppressed
from tileyard.targets.own_sources import digest_own_sources

AnswerT = TypeVar("AnswerT")
FailureWay = Literal["check", "mismatch", "compile_error", "elsewhere"]


class SharedBegan(Record, tag="shared_began"):
    """The worker began what many kernels share, as precompiled headers: no kernel's time from here on."""


class SharedEnded(Record, tag="shared_ended"):
    """After SharedBegan: the worker returned to the kernels."""


class PartBuilt(Record, tag="part_built"):
    """One of the builds made together is in the object store, while others are still being made."""

    build: BuildKey


CompilerNotice = SharedBegan | SharedEnded | PartBuilt


class Question(Record, Generic[AnswerT]):
    """Base of requests that have one answer, of the type that the request's own class names."""

    def check(self, answer: object) -> AnswerT:
        """The answer, checked to be of that type. Raises AssertionError if it is of another."""
        (kind,) = get_args(type(self).__orig_bases__[0])  # type: ignore[attr-defined]  # of a generic class
        if not isinstance(answer, kind):
            raise AssertionError(f"{type(self).__name__} was answered with {answer}")
        return answer  # type: ignore[no-any-return]  # its type is known when it runs


class Spent(Record):
    """The cost of an answer: ``start_s`` of its process to start, up to ``peak_bytes`` of memory."""

    seconds: float
    cpu_s: float
    start_s: float
    peak_bytes: int


class FileImported(Record, tag="file_imported"):
    """The first message of an author's process: it has imported the file, or failed to."""


class FailureFound(Record, tag="failure_found"):
    """How a ``program`` fails: messages by its signs, in order; none if it does not. Equal signs: the same
    way. ``source`` is a TileLang kernel with this Program, ``refusal`` the reason if there is none.
    """

    program: str
    signs: dict[str, str]
    source: str = ""
    refusal: str = ""


class FindFailure(Question[FailureFound], tag="find_failure"):
    """Ask how one config fails, or a ``program`` made of it, as text; its dimensions and scalars
    are numbers. A ``mismatch`` compares the Program's meaning with the ``target``'s, or with each
    pass of a ``pipeline``. The author knows nothing of a failure ``elsewhere``. With a ``sign``
    others do not matter. ``has_own_inputs``: arrays are the first elements of the kernel's own.
    """

    kernel: str
    arguments: dict[str, Value]
    config: dict[str, Value]
    way: FailureWay
    program: str = ""
    pipeline: str = ""
    target: str = ""
    plugins: dict[str, str] = {}
    has_own_inputs: bool = True
    sign: str = ""


class SyncChecked(Record, tag="sync_checked"):
    """What was checked of one config: ``blocks`` of the grids of all ``instances``; what was not,
    in words. An instance is a choice of sizes, empty if none makes a difference. ``trips`` are by
    line of loops that wait or overlap; one with a period, in iterations, is checked for all trip
    counts. ``suppressed``: findings that comments allow; ``unused``: comments that allow nothing.
    ``notes`` say what TileLang makes of lines, and are no mistakes.
    """

    kernel: str
    config: dict[str, Value]
    blocks: int
    grid: int
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    instances: tuple[dict[str, int], ...] = ()
    trips: dict[int, tuple[int, ...]] = {}
    periods: dict[int, int] = {}
    suppressed: tuple[Suppressed, ...] = ()
    unused: tuple[Allowed, ...] = ()
    notes: tuple[Diagnostic, ...] = ()


class BlockTraced(Record, tag="block_traced"):
    """What one block of a config did, in the order of an interpreter: ``place`` is the block's, by axis of a
    ``grid`` of these sizes. ``mistakes`` were found in its synchronization. Not ``is_whole`` if only its last
    steps are kept.
    """

    kernel: str
    config: dict[str, Value]
    grid: dict[str, int]
    place: dict[str, int]
    spans: tuple[BlockSpan, ...]
    mistakes: int = 0
    is_whole: bool = True


class PassStep(Record):
    """The Program after the pass ``name``, with each statement's line; ``notes`` on what it left
    unchanged. ``fault``: what is wrong, empty if nothing or unchecked. ``took_ms``: median time in
    milliseconds, None unless requested and for what is no pass.
    """

    name: str
    text: str
    notes: tuple[Diagnostic, ...] = ()
    fault: str = ""
    took_ms: float | None = None


class PassesShown(Record, tag="passes_shown"):
    """The result of each pass on one config. The first of the ``steps`` is the kernel as it is written."""

    kernel: str
    config: dict[str, Value]
    steps: tuple[PassStep, ...]
    is_checked: bool = False


class CommandRun(Record):
    """What is run for a case, besides its artifact.
    ``folder`` is the case's own, with ``{work}`` in ``data`` and temporary files in ``tmp``; ``env`` is added
    to the runner's environment; ``name`` is the case's in a hot run. ``own_build``: what the case itself
    needs of a shared build. ``suite`` and ``toolchain`` are folders, or, on the way to another host, trees,
    as are ``folders`` that variables list by their paths on the engine's host.
    ``is_judged``: exit code 0 alone proves nothing. ``memory_bytes`` bounds the address space of each
    process, 0 for no limit. ``inherited`` are variables of the engine's host that steps inherit by name.
    """

    name: str
    run: Step
    folder: str
    suite: str = ""
    toolchain: str = ""
    hot: HotRun | None = None
    env: dict[str, str] = {}
    folders: dict[str, Digest] = {}
    inherited: dict[str, str] = {}
    is_judged: bool = False
    own_build: str = ""
    memory_bytes: int = 0


# ---- author: the process in which the user's code lives ---------------------------------------


class Kernels(Record, tag="kernels"):
    """Answer to DescribeKernels."""

    kernels: tuple[KernelInfo, ...]


class Space(Record, tag="space"):
    """Answer to ExpandSpace: ``axes`` to multiply out, or ``configs``; ``flops``: as stated, else 0.

    ``constraints`` and the ``conditions`` of parameters that only count sometimes are texts. If it
    ``asks_where``, functions of the kernel decide, too.
    """

    axes: dict[str, Values] = {}
    configs: tuple[dict[str, Value], ...] = ()
    flops: float = 0.0
    constraints: tuple[str, ...] = ()
    conditions: dict[str, str] = {}
    asks_where: bool = True


class Accepted(Record, tag="accepted"):
    """Answer to CheckConfigs, one per config; ``refusal``: the message about the first not accepted."""

    accepted: tuple[bool, ...]
    refusal: str = ""


class WorkCounted(Record, tag="work_counted"):
    """Answer to CountWork: amounts, as ``ir/work.py`` names them; none if the config has no Program."""

    work: dict[str, float]


class ElaboratedConfig(Record, tag="elaborated_config"):
    """Answer to ElaborateConfig; ``log``: the user code's. ``command``: what built programs run, or None."""

    elaborated: Elaborated
    log: str = ""
    command: CommandRun | None = None


class Golden(Record, tag="golden"):
    """Answer to MakeGolden: blobs in ``.npy`` format in the object store.

    ``inputs`` has one entry for each ``in`` and ``inout`` tensor, ``outputs`` one for each ``out`` and
    ``inout`` tensor in calling order, or none without a reference. ``tree`` is the directory that the golden
    step of a case of programs made, of which the case gets ``part``; empty for none. ``used`` identifies all
    that its run step uses besides the build. ``flag`` is a warning although nothing failed.
    ``is_identified``: the key was known before anything was computed. ``footprint`` is what the result of
    such a case rests on; ``is_partial``: more of it follows from its build, so it proves nothing.
    """

    key: GoldenKey
    inputs: tuple[Digest, ...]
    outputs: tuple[Digest, ...]
    tree: Digest = Digest("")
    part: GoldenPart = WHOLE
    used: str = ""
    flag: str = ""
    reused: bool = False
    is_identified: bool = False
    footprint: Footprint = msgspec.field(default_factory=Footprint)
    is_partial: bool = False
    measurement: Measurement | None = None


class Failed(Record, tag="failed"):
    """The user's code or request failed. ``usage``: the whole request is invalid (exit status 2);
    else only this case fails, with ``outcome``. ``log``: the traceback of the user's frames.
    ``is_final``: not to be asked again.
    """

    message: str
    outcome: Outcome = Outcome.RUNTIME_ERROR
    is_final: bool = False
    diagnostic: Diagnostic | None = None
    usage: bool = False
    log: str = ""


class DescribeKernels(Question[Kernels], tag="describe_kernels"):
    """Ask for the kernels of the file."""


class ExpandSpace(Question[Space], tag="expand_space"):
    """Ask for one kernel's space of configs, given its arguments. ``functions`` must exist in the
    user's file, by purpose. Without flops nothing is elaborated.
    """

    kernel: str
    arguments: dict[str, Value]
    functions: dict[str, str] = {}
    with_flops: bool = True


class CheckConfigs(Question[Accepted], tag="check_configs"):
    """Ask which of these configs the kernel's ``where`` accepts."""

    kernel: str
    arguments: dict[str, Value]
    configs: tuple[dict[str, Value], ...]


class CountWork(Question[WorkCounted], tag="count_work"):
    """Ask what a launch of this config does."""

    kernel: str
    arguments: dict[str, Value]
    config: dict[str, Value]


class ElaborateConfig(Question[ElaboratedConfig], tag="elaborate_config"):
    """Turn one config into a Kernel, after the passes that ``pipeline`` or it names for ``target``."""

    kernel: str
    arguments: dict[str, Value]
    config: dict[str, Value]
    with_tir: bool = False
    pipeline: str = ""
    target: str = ""


class MakeGolden(Question[Golden], tag="make_golden"):
    """Make inputs and reference outputs, ``anew`` or else find them. ``threads`` caps the numeric libraries.
    ``reference`` and ``make_inputs`` name functions that replace the kernel's own, ``draw`` the inputs.
    ``only_identified``: no key if there is none beforehand. With a ``timing`` the reference is timed.
    """

    kernel: str
    arguments: dict[str, Value]
    specs: tuple[TensorSpec, ...]
    scalars: tuple[Value, ...] = ()
    threads: int = 1
    reference: str = ""
    make_inputs: str = ""
    draw: Draw = USUAL_DRAW
    only_identified: bool = False
    timing: TimingPolicy | None = None
    anew: bool = False


def _sync_recipe() -> str:
    return digest_own_sources("tileyard.workers.sync_sizes")


class CheckSync(Question[SyncChecked], tag="check_sync"):
    """Check one config for races, undefined accesses and wrong synchronization, at sizes of the
    check's choice.
    Nobody requested the values of ``guessed`` arguments. With an ``architecture``, such as
    ``sm_90a``, it is checked as TileLang plans it for that. ``reference`` and ``make_inputs`` name
    functions that replace its own. ``limit_s`` bounds the running of blocks, 0 for no limit.
    ``is_unasked``: the answer says why a config cannot be checked, and loops are not searched for
    periods. ``until_first``: stop after sizes with a finding. Unless results are compared, outputs
    need not be written. Another ``recipe``'s answers are not used again; timelines come on request.
    """

    kernel: str
    arguments: dict[str, Value]
    config: dict[str, Value]
    architecture: str = ""
    guessed: tuple[str, ...] = ()
    reference: str = ""
    make_inputs: str = ""
    limit_s: float = 0.0
    is_unasked: bool = False
    is_compared: bool = True
    until_first: bool = False
    with_timeline: bool = False
    recipe: str = msgspec.field(default_factory=_sync_recipe)


class TraceBlock(Question[BlockTraced], tag="trace_block"):
    """Run the middle block of one config in the asynchronous meaning, and record its steps. With an
    ``architecture`` as TileLang plans it for that.
    """

    kernel: str
    arguments: dict[str, Value]
    config: dict[str, Value]
    architecture: str = ""


class ShowPasses(Question[PassesShown], tag="show_passes"):
    """Run a pipeline's passes on one config. ``is_checked`` compares each result with the kernel as
    written. ``pipeline`` is its name or that of the file with ``document``; ``tilelang``:
    TileLang's plan for ``architecture``. ``is_timed``: how long each takes.
    """

    kernel: str
    arguments: dict[str, Value]
    config: dict[str, Value]
    pipeline: str
    document: str = ""
    architecture: str = "sm_80"
    is_checked: bool = False
    is_timed: bool = False


class LookedInside(Record, tag="looked_inside"):
    """Answer to LookInside."""

    look: Look


class LookInside(Question[LookedInside], tag="look_inside"):
    """Record one ``block`` of a config, empty for the one with the first wrong element. Its other fields are
    those of MakeGolden and CheckSync. The limits of CPU seconds are multiplied by ``patience``.
    """

    kernel: str
    arguments: dict[str, Value]
    config: dict[str, Value]
    block: tuple[int, ...] = ()
    architecture: str = ""
    reference: str = ""
    make_inputs: str = ""
    tolerance: Tolerance | None = None
    patience: float = 1.0


class Judged(Record, tag="judged"):
    """The verdict on the outputs of a case."""

    outcome: Outcome
    message: str = ""
    mismatch: Mismatch | None = None


AuthorRequest = (
    DescribeKernels
    | ExpandSpace
    | CheckConfigs
    | CountWork
    | ElaborateConfig
    | MakeGolden
    | CheckSync
    | TraceBlock
    | ShowPasses
    | FindFailure
    | LookInside
)
AuthorReply = (
    Kernels
    | Space
    | Accepted
    | WorkCounted
    | ElaboratedConfig
    | Golden
    | SyncChecked
    | BlockTraced
    | PassesShown
    | FailureFound
    | LookedInside
    | Failed
)


class Answered(Record, tag="answered"):
    """An author's message: a reply, its cost, and what its answers so far depend on if that grew."""

    reply: AuthorReply
    spent: Spent | None = None
    footprint: Footprint | None = None


# ---- compile worker: never touches a device ------------------------------------------------------


class BuildKernel(Record):
    """A kernel to build into the object store, with builds ``together`` in the same call: keys by program."""

    case: str
    build: BuildKey
    elaborated: Elaborated
    options: dict[str, Value]
    together: dict[str, BuildKey] = {}


class TargetInfo(Record, tag="target_info"):
    """Answer to DescribeTarget. ``groups``: building several at once costs it less."""

    fingerprint: str
    needs_tir: bool
    groups: bool = False


class BuildRefused(Record, tag="build_refused"):
    """The target itself cannot be used here."""

    message: str
    hint: str = ""


class BuiltKernels(Record, tag="built_kernels"):
    """Answer to BuildKernels: one verdict for each kernel, in order."""

    verdicts: tuple[Build, ...]


class DescribeTarget(Question[TargetInfo], tag="describe_target"):
    """Load a target. Answer: TargetInfo, or BuildRefused. ``group_size``: the most kernels built as
    one, 0 for its choice. ``caches``: the folder of its tools, separate from others' if not empty.
    ``warms_up``: builds will follow, for which the worker imports its compiler now.
    """

    target: str
    plugins: dict[str, str]
    group_size: int = 0
    caches: str = ""
    warms_up: bool = True

    def check(self, answer: object) -> TargetInfo:
        """See ``Question``. Raises ToolMissingError if the target cannot be used."""
        if isinstance(answer, BuildRefused):
            raise ToolMissingError(answer.message, answer.hint)
        return super().check(answer)


class BuildKernels(Question[BuiltKernels], tag="build_kernels"):
    """Build these in one call of the target, ``anew`` without earlier binaries. Answer: BuiltKernels."""

    kernels: tuple[BuildKernel, ...]
    anew: bool = False


CompilerRequest = DescribeTarget | BuildKernels
CompilerReply = TargetInfo | BuildRefused | BuiltKernels | CompilerNotice


# ---- runner: holds one lease -----------------------------------------------------------------------


class RunEntry(Record):
    """What a runner needs for one case; what it names is in the object store. ``command`` is what a
    case of programs runs, None for a kernel. ``lines`` are the user's, by statement number;
    ``rule`` is as in an Elaborated.
    """

    case: str
    build: BuildKey
    golden: Golden
    specs: tuple[TensorSpec, ...]
    scalars: tuple[Value, ...]
    log: str
    command: CommandRun | None = None
    lines: dict[int, SourceLine] = {}
    rule: Rule | None = None


class Extent(Record):
    """A part of the memory in which a runner leaves outputs."""

    start: int
    size: int


class HandedOutput(Record):
    """A written parameter, for the judge: ``dtype`` is TVM's name, ``precision`` that to which it was
    rounded. It is in ``extent`` of the shared memory under the descriptor ``memory``, or in ``data``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    memory: int = -1
    extent: Extent | None = None
    data: bytes = b""
    precision: str = ""


class RunBatch(Record, tag="run_batch"):
    """Run a batch. Answers: CaseBegan, CaseRan for each; BatchRan. ``taken``: extents not judged yet."""

    batch: Batch
    entries: tuple[RunEntry, ...]
    plugins: dict[str, str]
    device: Device
    taken: tuple[Extent, ...] = ()


class StopBatch(Record, tag="stop_batch"):
    """Begin no further case of the batch that runs. Answer: its BatchRan; none if nothing runs."""


class OutputsJudged(Record, tag="outputs_judged"):
    """Outputs of these cases of the batch that runs are judged: their memory may be used again. No answer."""

    cases: tuple[str, ...]


class RunnerReady(Record, tag="runner_ready"):
    """The first message of a runner: it has loaded what it needs, and waits for a batch."""


class CaseBegan(Record, tag="case_began"):
    """The runner turned to this case: what happens next is attributed to the case."""

    case: str


class CaseRan(Record, tag="case_ran"):
    """A case ended inside the runner, under the lease with this number. ``outputs`` are still to be
    compared; ``mismatch`` is what a run with other memory changed. ``insists``: the final outcome
    if it always ends as ``infra_error``.
    """

    case: str
    outcome: Outcome
    seconds: float
    message: str = ""
    insists: Outcome = Outcome.INFRA_ERROR
    measurement: Measurement | None = None
    mismatch: Mismatch | None = None
    lease: int = 0
    outputs: tuple[HandedOutput, ...] = ()


class BatchRan(Record, tag="batch_ran"):
    """All entries were answered; the runner is ready for another batch."""

    batch: str


class RunnerSpent(Record, tag="runner_spent"):
    """Instead of BatchRan: the device is lost here, or must be probed; the rest needs a new runner."""

    batch: str


RunnerRequest = RunBatch | StopBatch | OutputsJudged
RunnerReply = RunnerReady | CaseBegan | CaseRan | BatchRan | RunnerSpent


# ---- judge: compares outputs, holds no device --------------------------------------------------------


class CaseToJudge(Record):
    """The outputs of a kernel that ran, the digests of the expected outputs, and how they are compared."""

    outputs: tuple[HandedOutput, ...]
    golden: tuple[Digest, ...]
    check: CheckPolicy


class JudgeReady(Record, tag="judge_ready"):
    """The first message of a judge: it has loaded what it needs."""


class Verdicts(Record, tag="verdicts"):
    """Answer to JudgeCases: one for each case, in order."""

    verdicts: tuple[Judged, ...]


class JudgeCases(Question[Verdicts], tag="judge_cases"):
    """Judge these cases."""

    cases: tuple[CaseToJudge, ...]


JudgeRequest = JudgeCases
JudgeReply = JudgeReady | Verdicts
