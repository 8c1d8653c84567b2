"""The records that all rooms share. Plain data: compared by value, sent as msgpack."""

import enum
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, NewType, dataclass_transform

import msgspec

from tileyard.base.errors import UsageError

EdgeValues = Literal["zeros", "tiny", "largest", "inf", "nan"]
"""Zeros of both signs; the smallest values, normal or not; the largest finite ones; infinities; NaN."""
Better = Literal["lower", "higher"]
"""Which of two numbers is better."""
Value = bool | int | float | str
MOST_LISTED: Final = 1 << 12
"""A longer range of values is kept as its ends."""
Digest = NewType("Digest", str)
BuildKey = NewType("BuildKey", str)
GoldenKey = NewType("GoldenKey", str)
RunKey = NewType("RunKey", str)
MeasurementKey = NewType("MeasurementKey", str)
NanPolicy = Literal["equal", "forbid", "ignore"]
"""NaN equals NaN; any NaN of the output is wrong; elements whose reference is NaN are not compared."""
QUEUE_LIMIT_S = 1800.0
"""Seconds that a run waits for a device unless it says otherwise."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's ``where`` as it was evaluated in elaborating; ``text`` names it and its line.
    ``numbers`` are the dimensions and scalars it takes with the accepted values, of the parameters
    of the Program in ``signature``.
    """

    text: str
    numbers: dict[str, bool | int | float | str]
    signature: str


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """The usual inputs, those of another ``seed``, or the usual ones with ``edges`` among them."""

    seed: int = 0
    edges: EdgeValues | None = None

    @property
    def name(self) -> str:
        """A name for people."""
        return f"edge values ({self.edges})" if self.edges else f"seed {self.seed}"


USUAL_DRAW = Draw()


class GoldenPart(msgspec.Struct, frozen=True, kw_only=True):
    """The files at or below ``path``, a pattern as in a shell, all if empty. ``is_linked``: links
    to the result, which nobody may write.
    """

    path: str = ""
    is_linked: bool = False


class BuildPart(msgspec.Struct, frozen=True, kw_only=True):
    """A target of a build: its own ``inputs``, its ``products`` below the cache, else in the folder."""

    inputs: tuple[str, ...] = ()
    products: tuple[str, ...] = ()


WHOLE = GoldenPart()


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A time of a run step in nanoseconds, or a number that it prints. ``cpu_time`` includes the
    processes it waited for, ``wall_time`` is from start to exit. ``printed``: the first group of
    ``pattern`` in the last line of standard output that matches.
    """

    of: Literal["cpu_time", "wall_time", "printed"]
    pattern: str = ""
    unit: str = "ns"
    better: Better = "lower"


# Tells type checkers what subclasses inherit from msgspec at run time: they are frozen and keyword-only.
@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


class Span(Record):
    """Values of a parameter without a list of them: the whole numbers from ``first`` to ``last``, ``step``
    apart.
    """

    first: int
    last: int
    step: int

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def numbers(self) -> range:
        """The same as a range."""
        return range(self.first, self.last + (1 if self.step > 0 else -1), self.step)


Values = tuple[Value, ...] | Span
"""The values to try for a parameter."""


def shorten_span(numbers: range) -> Values:
    """The values of a range: listed if they are few. Raises UsageError for numbers of more than 61 bits."""
    if any(abs(number) >> 61 for number in (numbers[0], numbers[-1])):
        raise UsageError(f"{numbers} has numbers of more than 61 bits")
    if len(numbers) <= MOST_LISTED:
        return tuple(numbers)
    return Span(first=numbers[0], last=numbers[-1], step=numbers.step)


def sequence_of(values: Values) -> Sequence[Value]:
    """The values as a sequence, which does not list those of a span."""
    return values.numbers if isinstance(values, Span) else values


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
    """One elaborated kernel with one config; every field is part of its identity. ``program`` is canonical
    text, empty for the reason ``refusal``; ``tir`` the digest of TIR without source lines, if the target
    needs it. ``pass_options`` and ``flags`` are for compilers of TIR; ``pipeline`` is ours, or empty.
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
    """A Kernel with data derived from it and source lines, which are part of no key;
    ``is_asynchronous``: its order can be checked.
    ``lines`` are by the statement's pre-order number, or ``-1 - i`` for buffer ``i``'s allocation.
    ``specs`` and ``scalars`` are parameters in calling order; ``tir`` is TVM's JSON with lines, if
    needed; ``source`` the kernel in TileLang after our pipeline. ``notes`` are no mistakes.
    ``rule`` is None if no number of a call breaks the kernel's ``where``.
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
    """``|got - want| <= atol * rms(want) + rtol * |want|``, NaN equal to NaN, a few huge elements not in the
    rms. ``is_elementwise``: ``atol`` is not multiplied by the rms. ``share`` of the elements may be wrong.
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
``work`` is the case's directory, with a copy of its golden results; ``out`` is for the results of a build or
golden step, read-only as ``golden`` and ``build``; ``cache`` is kept between builds. ``device`` is what the
program opens, ``device_physical`` the lease's index or name, ``threads`` the most threads, ``toolchain`` the
unpacked bundle. ``targets`` (needed parts of a shared build), ``cases`` and ``works`` (of a hot batch, in one
order), alone as an argument, become one argument per item.
"""


class Step(Record):
    """A program that is run for a case, with the files that its result depends on.
    ``argv``, ``cwd`` and ``env`` are templates: ``{place}`` is one of PLACES, braces are doubled.
    ``inputs`` are files, directories and globs. ``limit_s`` is 0 for the run's limit; an empty
    ``cwd`` is the suite's folder, or the work directory for run and check. It gets the usual
    variables and those that it ``inherits``, or all. ``runs`` names all further programs, None if
    not stated. The output of ``versions`` replaces those programs' content.
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
    """One process that runs or checks several cases and reports each on its output. ``began`` and
    ``ended`` are regular expressions for a line with a group ``case``; ``verdicts`` maps
    ``ended``'s group ``verdict`` to an outcome.
    """

    step: Step
    began: str
    ended: str
    verdicts: dict[str, Outcome]


class OutputCheck(Record):
    """A binary output in ``work`` compared with the golden step's: ``shape`` of ``dtype`` in C
    order, of which ``valid_shape`` (all if empty) counts. ``tolerance`` is None for the dtype's
    default; with ``is_elementwise`` its ``atol`` is not multiplied by the rms.
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
    """The comparison of outputs; ``tolerance`` None: the dtype's. ``closest``: name the closest elements."""

    enabled: bool = True
    tolerance: Tolerance | None = None
    closest: bool = False


class TimingPolicy(Record):
    """The rules for when a measurement is good enough.
    It ends once the median's interval at ``confidence`` is narrower than ``relative_width`` of it,
    or after ``max_samples`` or ``max_ns``, not before ``min_samples``. In a ``group``, a config
    whose whole interval is above the best's is abandoned. If not 0, ``launches`` are timed singly,
    whatever their times, and ``warmup_launches`` replace ``warmup_ns``. For GPUs, ``flush_l2``
    flushes before every launch, and ``graph`` replays captured launches without the host's time.
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
    """A case that is a sequence of programs; only ``run`` holds ``devices`` devices.
    A ``build`` may be shared: ``target`` and ``target_part`` are what this case needs. ``check`` exits with 0
    for right, 2 for wrong results, else it is an error; without it and ``outputs``, exit status 0 of ``run``
    suffices. The case gets ``part`` of ``golden``'s results. ``measure`` compares versions, None for the
    default of the place. ``variant`` is the end of the case's name that its programs do not know.
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
    """A kernel with arguments and one config. ``file`` declares it, empty if the client holds it;
    ``shape`` names its arguments, if named. ``reference`` and ``inputs`` name functions in place of
    its own; it runs on the inputs of a ``draw``.
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
    """An author with its environment: a Python, empty for the engine's, with ``variables`` added.
    ``pass_options`` replace a kernel's own. ``pipeline`` is ``tileyard`` for our default, the name
    of one of ours, else TileLang's is used. ``revision`` is a commit, or words; ``toolchain`` a
    bundle for its steps; ``stored`` a bundle or run with its builds: then there is no author and
    nothing is built. ``python_limit_s`` limits the import and each answer, 0 for the usual limits.
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
    """One thing to run: ``id`` (of a ``testcase``: ``testcase/name``) with ``attempt``, from 1, is unique
    within a run, as is ``key``.
    It is built for ``target`` with ``options`` on that ``side``; ``seed`` is for its programs. ``until`` ends
    it once ``checked`` for undefined behaviour, ``built``, or ``packed`` with inputs and reference.
    ``control`` marks what cannot win: the second of an A/A pair, a further check, or, timed alone, a kernel
    that compares devices, measured in each run. ``abandon_above_ns`` is the best median's upper bound when
    planned, or 0; ``expected_s`` the run time, None for that of earlier trials. A binary whose facts exceed
    ``bounds``, by name, is not run, if its batch is ``alike``.
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
    bounds: dict[str, float] = {}

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
    """Cases that share one lease; ``interleaved``: timed in turn, ABBA, for ``rounds``, or until ``calm`` of
    them were.
    ``known`` says whether recorded results end a case, are ignored, or are required. ``devices`` names those
    that may run it, empty for all. ``fresh``: its process ran none of its kernels before if ``interleaved``,
    else nothing. ``repetition`` counts batches that repeat a comparison and share no results. An ``alike``
    case is not run if another of its run has the same binary: it ends like that.
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
    """A device that runs artifacts; ``cores`` are the CPUs it owns while timing.
    ``identity``, of the silicon and how it is driven, is in the measurement key. ``locks`` are all
    files that a holder takes, in this order; ``env`` the variables by which it is found, as
    ``CUDA_VISIBLE_DEVICES``. ``probe`` is the command whose exit code shows its health, empty for
    none, limited by ``probe_limit_s``. ``arch`` is in its maker's words (``sm_90``), ``driver_api``
    as ``13.0``; both may be empty. If a variable is the ``mask``, programs number devices from 0.
    ``count`` devices held at once are one, with ``members`` or of a queue.
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


Nanoseconds = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
"""A time of a launch or run; records of files with another one, such as -1 or 1e300, cannot be read."""
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
"""Seconds since the epoch, up to the year 5138, of which there are dates."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""How long something took."""


class Measurement(Record):
    """Times of one kernel or program on one device, nanoseconds per launch or run. ``low_ns`` and
    ``high_ns`` bound the median at ``confidence``. ``abandoned``: clearly slower than the best.
    ``device_state`` is the device's report afterwards, for people, if any; ``disturbed``: why times
    are unusual. ``printed``: numbers that the runs printed, if they are measured.
    """

    median_ns: Nanoseconds
    low_ns: Nanoseconds
    high_ns: Nanoseconds
    confidence: float
    samples_ns: tuple[float, ...]
    steady: bool = True
    abandoned: bool = False
    device_state: dict[str, str] = {}
    printed: tuple[float, ...] = ()


class Mismatch(Record):
    """The worst element of a wrong output, and the number of wrong ones. ``got`` and ``want`` are
    text, as JSON lacks NaN and some integers; ``left_out`` huge elements are not in the rms.
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
            f"{self.output}[{where}] is {self.got}, expected {self.want}; {self.wrong} of {self.total}"
            f" elements are wrong ({100 * self.wrong / self.total:.3g} %){huge * bool(self.left_out)}"
        )


class Keys(Record):
    """A trial's chain of identities, empty if not reached. ``binary``: of a binary or a run step's files."""

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
    Times are in seconds (since the epoch), ``log`` is below the data directory, ``lease`` is 0 for
    none, ``limits`` are the case's. ``case`` is its id, ``attempt`` the number, ``shape`` the name
    of the arguments. ``kernel`` is empty for programs, ``suite`` and ``testcase`` for none.
    ``attempts`` before failed through device or host. ``revision`` is its side's; ``silicon`` the
    device's identity if timed. ``exceeds``: the limit of devices or of its study for which it is too large.
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
    started_at: Moment = 0.0
    build_s: float = 0.0
    run_s: Seconds = 0.0
    lease: int = 0
    log: str = ""
    limits: Limits = Limits()
    reused: bool = False
    attempts: tuple[Attempt, ...] = ()
    exceeds: str = ""

    @property
    def key(self) -> str:
        """The key of its case."""
        return name_attempt(self.case, self.attempt)


def median_ns(trial: Trial) -> float:
    """The time by which trials are ordered; infinite for a trial that was not measured."""
    return trial.measurement.median_ns if trial.measurement is not None else float("inf")


_FINAL = WELL | INFRASTRUCTURE | {Outcome.NOT_RUN, Outcome.COMPILE_ERROR}


def is_retried(outcome: Outcome, attempt: int, retries: int) -> bool:
    """Whether a case is tried again after ``attempt``, from 1; not after infrastructure faults or builds."""
    return outcome not in _FINAL and attempt <= retries
