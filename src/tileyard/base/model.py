"""The records that all rooms share. Plain data: compared by value, sent as msgpack."""

import enum
from typing import ClassVar, Literal, NewType, dataclass_transform

import msgspec

from tileyard.base.draws import USUAL_DRAW, Draw
from tileyard.base.measures import Measure
from tileyard.base.parts import WHOLE, BuildPart, GoldenPart
from tileyard.base.rules import Rule

Value = bool | int | float | str
Digest = NewType("Digest", str)
BuildKey = NewType("BuildKey", str)
GoldenKey = NewType("GoldenKey", str)
RunKey = NewType("RunKey", str)
MeasurementKey = NewType("MeasurementKey", str)


# Tells type checkers what subclasses inherit from msgspec at run time: they are frozen and keyword-only.
@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


class Outcome(enum.StrEnum):
    """How a case ended: exactly one per case, never merged, never lost."""

    PASSED = "passed"
    UNCHECKED = "unchecked"
    MISMATCH = "mismatch"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    QUEUE_TIMEOUT = "queue_timeout"
    INFRA_ERROR = "infra_error"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"


WELL = frozenset({Outcome.PASSED, Outcome.UNCHECKED, Outcome.SKIPPED})
INFRASTRUCTURE = frozenset({Outcome.QUEUE_TIMEOUT, Outcome.INFRA_ERROR})


# ---- kernels --------------------------------------------------------------------------------


class SourceLine(Record):
    """A line of the user's file; ``line`` counts from 1."""

    file: str
    line: int


class Diagnostic(Record):
    """Why something was refused: one line, the operation concerned, and its source line."""

    message: str
    operation: str = ""
    where: SourceLine | None = None


class Kernel(Record):
    """One elaborated kernel with one config. Every field is part of its identity.

    ``program`` is the Program's canonical text, empty if there is none, for the reason ``refusal``. ``tir`` is the digest of its TIR without source lines, only if the target needs it. ``pass_options`` and ``flags`` are for the compilers of targets that take TIR. ``pipeline`` is the pipeline of ours that made it, empty for none.
    """

    name: str
    program: str = ""
    refusal: Diagnostic | None = None
    tir: str = ""
    pass_options: dict[str, Value] = {}
    flags: tuple[str, ...] = ()
    pipeline: str = ""


class TensorSpec(Record):
    """A parameter of a kernel with its concrete shape; ``dtype`` is TVM's name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Literal["in", "out", "inout"]


class Elaborated(Record):
    """A Kernel with data derived from it and its source lines, which are part of no key. If it ``is_asynchronous``, its order can be checked.

    ``lines`` has the source line of each statement, by pre-order number, and of the allocation of buffer ``i`` by ``-1 - i``. ``specs`` are the tensor parameters and ``scalars`` the scalar ones, both in calling order. ``tir`` is TVM's JSON with source lines, if the target needs it. ``source`` is the kernel after our pipeline, in TileLang. ``notes`` say what TileLang makes of lines of it; they are no mistakes. ``rule`` is None if no number of a call can make the kernel's ``where`` reject it.
    """

    kernel: Kernel
    tir: str = ""
    is_asynchronous: bool = False
    lines: dict[int, SourceLine] = {}
    specs: tuple[TensorSpec, ...] = ()
    scalars: tuple[Value, ...] = ()
    source: str = ""
    notes: tuple[Diagnostic, ...] = ()
    rule: Rule | None = None


class Tolerance(Record):
    """``|got - want| <= atol * rms(want) + rtol * |want|``, NaN equal to NaN; a few huge elements do not count in the rms.

    With ``is_elementwise``, ``atol`` is not multiplied by the rms. An output is right if no more than ``share`` of its elements are wrong.
    """

    rtol: float
    atol: float
    is_elementwise: bool = False
    share: float = 0.0


# ---- programs --------------------------------------------------------------------------------

PLACES = (
    *("work", "out", "cache", "golden", "build", "device", "device_physical"),
    *("threads", "toolchain", "targets", "cases", "works"),
)
"""The places that a step's templates can name.

``work`` is the case's private directory, with a copy of its golden step's results. ``out`` is the directory for the results of a build or golden step; ``golden``
and ``build`` are these results, read-only. ``cache`` is kept between builds, for build tools that do not repeat work. ``device`` is what the program opens,
``device_physical`` the index or name from the lease, ``threads`` the most threads that a step may use. ``toolchain`` is the unpacked toolchain bundle. ``targets`` are the parts of a shared build
that the selection needs, ``cases`` the cases of a hot batch, ``works`` their directories in the same order; each of these three, alone as an argument, becomes one argument per item.
"""

NanPolicy = Literal["equal", "forbid", "ignore"]
"""NaN equals NaN; any NaN of the output is wrong; elements whose reference is NaN are not compared."""


class Step(Record):
    """A program that is run for a case, with the files that its result depends on.

    ``argv``, ``cwd`` and the values of ``env`` are templates: ``{place}`` is one of PLACES, a literal brace is written twice.
    ``inputs`` are files, directories and globs. ``limit_s`` is 0 for the run's limit. An empty ``cwd`` is the suite's folder, or the case's work directory for a run or check step.
    Of the variables of Tileyard's own process it gets the usual ones and those that it ``inherits``, or all. ``runs`` names all programs that it
    starts besides its own, None if not stated. The output of each command of ``versions`` replaces the content of that command's program.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    inputs: tuple[str, ...] = ()
    cwd: str = ""
    limit_s: float = 0.0
    inherits: tuple[str, ...] = ()
    inherits_all: bool = False
    runs: tuple[str, ...] | None = None
    versions: tuple[tuple[str, ...], ...] = ()


class HotRun(Record):
    """One process that runs or checks several cases and reports each result on its output.

    ``began`` and ``ended`` are regular expressions that are searched in each line; both have a group ``case``, and ``ended`` has a group
    ``verdict``, which ``verdicts`` maps to an outcome.
    """

    step: Step
    began: str
    ended: str
    verdicts: dict[str, Outcome]


class OutputCheck(Record):
    """A binary output in ``work`` that is compared with that of the golden step.

    Raw elements in C order: ``shape`` of ``dtype``, of which the leading ``valid_shape`` (all if empty) is compared. ``tolerance`` is None
    for the dtype's default; with ``is_elementwise`` its ``atol`` is not multiplied by the reference's root mean square.
    """

    file: str
    golden: str
    dtype: str
    shape: tuple[int, ...]
    valid_shape: tuple[int, ...] = ()
    tolerance: Tolerance | None = None
    is_elementwise: bool = True
    nan: NanPolicy = "equal"


# ---- cases ----------------------------------------------------------------------------------


class CheckPolicy(Record):
    """The comparison of outputs. ``tolerance`` is None for the dtype's default. With ``closest`` a passed case's message names the closest elements."""

    enabled: bool = True
    tolerance: Tolerance | None = None
    closest: bool = False


class TimingPolicy(Record):
    """The rules for when a measurement is good enough.

    Sampling stops once the interval of the median at ``confidence`` is narrower than ``relative_width`` of it, or after ``max_samples`` or ``max_ns``; never before ``min_samples``.
    Within ``group``, a config whose whole interval is above the best one's is abandoned early.

    If ``launches`` is not 0, that many single launches are timed instead, whatever their times are; if ``warmup_launches`` is not 0, that many warm up in place of ``warmup_ns``.

    ``flush_l2`` flushes the L2 cache before every launch, and ``graph`` captures and replays launches, so that the host's time per launch is not included. Both are only for GPUs.
    """

    confidence: float = 0.95
    relative_width: float = 0.02
    min_samples: int = 12
    max_samples: int = 400
    warmup_ns: int = 20_000_000
    max_ns: int = 400_000_000
    min_sample_ns: int = 200_000
    warmup_launches: int = 0
    launches: int = 0
    group: str = ""
    flush_l2: bool = False
    graph: bool = False


class Limits(Record):
    """The most seconds per step of a case, and the most memory of its runner."""

    elaborate_s: float = 60.0
    golden_s: float = 300.0
    build_s: float = 120.0
    run_s: float = 60.0
    memory_bytes: int = 8 << 30


class CommandWork(Record, tag="command"):
    """A case that is a sequence of programs. Only ``run`` holds a device, or ``devices`` devices at once.

    A ``build`` that several cases share is built once. ``target`` is what this case needs of it, and ``target_part`` describes that. The exit status of ``check`` tells whether the results are right: 0 right, 2 wrong, anything else is an error.
    The case gets ``part`` of the results of ``golden``. Without ``check`` and ``outputs``, exit status 0 of ``run`` suffices. Versions are compared by ``measure``, None for the default of the place where they run. ``variant`` is the end of the name of a case whose programs know it without that end.
    """

    run: Step
    build: Step | None = None
    target: str = ""
    target_part: BuildPart = BuildPart()
    golden: Step | None = None
    part: GoldenPart = WHOLE
    check: Step | None = None
    check_hot: HotRun | None = None
    outputs: tuple[OutputCheck, ...] = ()
    hot: HotRun | None = None
    measure: Measure | None = None
    variant: str = ""
    devices: int = 1


class KernelWork(Record, tag="kernel"):
    """A kernel with arguments and one config.

    ``file`` is the Python file that declares it, empty if the client holds the kernel. ``shape`` names its
    arguments, if they have a name. ``reference`` and ``inputs`` name functions of the file in place of the kernel's own. It
    runs on the inputs of a ``draw``.
    """

    file: str = ""
    kernel: str = ""
    arguments: dict[str, Value] = {}
    shape: str = ""
    config: dict[str, Value] = {}
    reference: str = ""
    inputs: str = ""
    tolerance: Tolerance | None = None
    draw: Draw = USUAL_DRAW
    devices: ClassVar[int] = 1


Work = KernelWork | CommandWork


class Side(Record):
    """An author with its environment: a Python, empty for the engine's own, with ``variables`` added.

    ``pass_options`` replace a kernel's own of the same names. ``pipeline`` is ``tileyard`` for our default of the target, or the name of one of ours; otherwise TileLang's own is used. ``revision`` names its version of the code: a commit, or words. ``toolchain`` is a bundle for its steps. ``stored`` is the bundle or recorded run with its builds; such a side has no author, and nothing is built for it. ``python_limit_s`` limits the import of a file and each answer of its code, 0 for the usual limits.
    """

    name: str = ""
    revision: str = ""
    python: str = ""
    variables: dict[str, str] = {}
    pass_options: dict[str, Value] = {}
    pipeline: str = ""
    stored: str = ""
    toolchain: str = ""
    python_limit_s: float = 0.0


def name_attempt(case: str, attempt: int) -> str:
    """The key of an attempt at a case, which is the case's id for the first. No id has an empty part."""
    return case if attempt == 1 else f"{case}//{attempt}"


def find_case(key: str) -> str:
    """The id of the case whose attempt has this key."""
    return key.partition("//")[0]


class Case(Record):
    """One thing to run. ``id`` and ``attempt``, counted from 1, are unique within a run, as is ``key``.

    It is built for ``target`` with ``options`` on the side of that name. With a ``testcase`` its id is ``testcase/name``. ``seed`` is for its programs. ``until`` lets it end once its kernel is ``checked`` for undefined behaviour, or it is ``built``, or ``packed`` with inputs and reference to run elsewhere. ``control`` marks cases that cannot win: the second entry of an A/A pair, a further check of a config, or, if timed alone, a kernel that compares devices, which each run measures again. ``abandon_above_ns`` is the best median's upper bound when the case was planned, or 0. ``expected_s`` is its expected run time, None to use earlier trials.
    """

    id: str
    work: Work
    target: str = "cpu"
    options: dict[str, Value] = {}
    side: str = ""
    suite: str = ""
    testcase: str = ""
    attempt: int = 1
    seed: int = 0
    until: Literal["checked", "built", "packed", "judged"] = "judged"
    check: CheckPolicy = CheckPolicy()
    timing: TimingPolicy | None = TimingPolicy()
    limits: Limits = Limits()
    control: bool = False
    abandon_above_ns: float = 0.0
    expected_s: float | None = None

    @property
    def key(self) -> str:
        """The key that identifies this attempt within its run."""
        return name_attempt(self.id, self.attempt)

    @property
    def config(self) -> dict[str, Value]:
        """The config of its kernel; empty for programs."""
        return self.work.config if isinstance(self.work, KernelWork) else {}

    @property
    def runner_bytes(self) -> int:
        """The memory limit of the process that runs it; 0 for programs, each of which has its own limit."""
        return self.limits.memory_bytes if isinstance(self.work, KernelWork) else 0


class Batch(Record):
    """Cases that share one lease. ``interleaved`` times them in turn, ABBA, for ``rounds`` rounds, or until ``calm`` of them were calm.

    ``known`` says what recorded results do: they end a case that has one, are ignored, or a case without one is not run.
    ``devices`` are the names of those that may run it, empty for all that can. In a ``fresh`` process, none of the kernels of an ``interleaved`` batch has run before; for other batches nothing at all has. ``repetition`` counts batches that repeat a comparison: they do not share results. The single case of an ``alike`` batch is not run if its binary is that of another case of its run: it ends like that case.
    """

    id: str
    cases: tuple[Case, ...]
    order: Literal["any", "fixed", "interleaved"] = "any"
    process: Literal["warm", "fresh"] = "warm"
    rounds: int = 0
    calm: int = 0
    repetition: int = 0
    alike: bool = False
    known: Literal["used", "ignored", "required"] = "used"
    devices: tuple[str, ...] = ()


class Device(Record):
    """A device that runs artifacts. ``cores`` are the CPUs it owns while a case is timed on it.

    ``identity`` names the silicon and how it is driven; it is part of the measurement key. ``locks`` are the lock files that a holder has, all of them, taken in this order.
    ``env`` are the variables by which a holder's processes find it, such as ``CUDA_VISIBLE_DEVICES``. ``probe`` is the command whose exit code shows whether the device is healthy, empty for none, and ``probe_limit_s`` its time limit. ``arch`` is
    the architecture of its code, in its maker's words (``sm_90``), empty if not known, and ``driver_api`` the interface version of its driver (``13.0``). If ``mask``, one of ``env``, hides other devices, programs number theirs from 0.
    ``count`` devices that a case needs at once are one Device here: its ``members`` are held together, or a queue gives that many.
    """

    name: str
    kind: str
    identity: str
    cores: tuple[int, ...] = ()
    locks: tuple[str, ...] = ()
    env: dict[str, str] = {}
    mask: str = ""
    probe: tuple[str, ...] = ()
    probe_limit_s: float = 30.0
    arch: str = ""
    driver_api: str = ""
    count: int = 1
    members: tuple["Device", ...] = ()


# ---- results --------------------------------------------------------------------------------


class Measurement(Record):
    """Times of one kernel or program on one device, nanoseconds per launch or run.

    ``low_ns`` and ``high_ns`` bound the median at ``confidence``. ``abandoned``: sampling stopped because the config was
    clearly slower than the best. ``device_state`` is the device's report right afterwards, as names and values for people,
    empty if it cannot report; its ``disturbed`` is why these times are not the device's usual ones. ``printed`` are the numbers that the runs printed, if such a number is their measure.
    """

    median_ns: float
    low_ns: float
    high_ns: float
    confidence: float
    samples_ns: tuple[float, ...]
    steady: bool = True
    abandoned: bool = False
    device_state: dict[str, str] = {}
    printed: tuple[float, ...] = ()


class Mismatch(Record):
    """The worst element of a wrong output, and the number of wrong elements.

    ``got`` and ``want`` are text, because JSON has no NaN and infinity, and not every integer. ``left_out`` huge elements do not count in the rms.
    """

    output: str
    index: tuple[int, ...]
    got: str
    want: str
    wrong: int
    total: int
    left_out: int = 0

    def describe(self) -> str:
        """The mismatch in one line for people."""
        where = ", ".join(str(i) for i in self.index)
        huge = f"; the tolerance follows the rms without the largest {self.left_out}"
        return (
            f"{self.output}[{where}] is {self.got}, expected {self.want}; {self.wrong} of {self.total} elements"
            f" are wrong ({100 * self.wrong / self.total:.3g} %){huge * bool(self.left_out)}"
        )


class Keys(Record):
    """The chain of identities of a trial; each is empty if its step was not reached. ``binary`` is equal for configs with the same binary, and for programs whose run steps use the same files; empty if not determined."""

    build: BuildKey = BuildKey("")
    binary: str = ""
    golden: GoldenKey = GoldenKey("")
    run: RunKey = RunKey("")
    measurement: MeasurementKey = MeasurementKey("")


class Attempt(Record):
    """An attempt at a case that its device or host failed: where, and how."""

    device: str
    lease: int
    message: str


class Trial(Record):
    """One recorded attempt at a case.

    Times are in seconds, points in time since the epoch. ``log`` is a path below the data directory. ``lease`` is the number of
    the lease under which it ran, 0 for none. ``limits`` are those of its case. ``case`` and ``attempt`` are the case's id and
    the number of the attempt, ``shape`` the name of the arguments' set. ``kernel`` is empty for programs, ``suite`` and
    ``testcase`` if the case belongs to none. ``attempts`` are those that the device or the host failed before this one.
    ``revision`` is that of its side, and ``silicon`` the identity of the device if it was timed. It is ``too_large`` if its
    build was refused because no device of the target has room for it.
    """

    id: str
    run: str
    case: str
    batch: str
    target: str
    outcome: Outcome
    kernel: str = ""
    arguments: dict[str, Value] = {}
    config: dict[str, Value] = {}
    shape: str = ""
    side: str = ""
    revision: str = ""
    suite: str = ""
    testcase: str = ""
    attempt: int = 1
    device: str = ""
    silicon: str = ""
    control: bool = False
    message: str = ""
    keys: Keys = Keys()
    measurement: Measurement | None = None
    mismatch: Mismatch | None = None
    started_at: float = 0.0
    build_s: float = 0.0
    run_s: float = 0.0
    lease: int = 0
    log: str = ""
    limits: Limits = Limits()
    reused: bool = False
    attempts: tuple[Attempt, ...] = ()
    too_large: bool = False

    @property
    def key(self) -> str:
        """The key of its case."""
        return name_attempt(self.case, self.attempt)


def median_ns(trial: Trial) -> float:
    """The time by which trials are ordered; infinite for a trial that was not measured."""
    return trial.measurement.median_ns if trial.measurement is not None else float("inf")


_FINAL = WELL | INFRASTRUCTURE | {Outcome.NOT_RUN, Outcome.COMPILE_ERROR}


def is_retried(outcome: Outcome, attempt: int, retries: int) -> bool:
    """Whether a case is tried again after its attempt number ``attempt``, counted from 1.

    The engine itself has tried infrastructure again, and a build would be the same.
    """
    return outcome not in _FINAL and attempt <= retries
