"""The facts that the engine's state takes in, and the commands that it returns: plain values."""

from tileyard.base.model import Batch, BuildKey, Outcome, Record
from tileyard.engine.lending import DeviceSite

# ---- facts: what has happened ------------------------------------------------------------------


class BatchesPlanned(Record, tag="batches_planned"):
    """The source answered an Ask; ``exhausted`` if it has no further batches for now."""

    batches: tuple[Batch, ...]
    exhausted: bool


class CasePrepared(Record, tag="case_prepared"):
    """The author is done with a case. ``built``: its artifact exists. Up to ``group`` kernels of a
    ``builder`` are built per request, builds of the same ``cache`` one at a time. ``expected_s`` is
    the duration of its last run, None if unknown; ``output_bytes`` the size of the outputs that the
    judge will look at.
    """

    case: str
    build: BuildKey
    built: bool
    cache: str = ""
    builder: tuple[str, ...] = ()
    group: int = 1
    expected_s: float | None = None
    output_bytes: int = 0


class CaseBuilt(Record, tag="case_built"):
    """A compile worker made the artifact of a case."""

    case: str


class BuildFailed(Record, tag="build_failed"):
    """A compile worker ended a build without an artifact; the case has ended."""

    case: str


class BuildLost(Record, tag="build_lost"):
    """No host is left that builds for the kind of CPU for which a case was to be built."""

    case: str


class PartBuilt(Record, tag="part_built"):
    """A compile worker has made one of the builds that it makes together, and goes on."""

    builder: tuple[str, ...]
    build: BuildKey


class CompilerFreed(Record, tag="compiler_freed"):
    """A compile worker has answered for every case that it was given."""

    worker: int


class CaseFinished(Record, tag="case_finished"):
    """A case ended without a build: in the author, by look-up, or after ``seconds`` on ``device``."""

    case: str
    device: str = ""
    seconds: float = 0.0


class CaseRanWell(Record, tag="case_ran_well"):
    """A case is done with its device after ``seconds``; its outputs, ``unjudged_bytes`` of memory
    for a kernel, are still to be judged. ``is_rival``: its time may bound those of others.
    """

    case: str
    device: str
    seconds: float
    is_kernel: bool = False
    is_rival: bool = False
    unjudged_bytes: int = 0


class CaseLost(Record, tag="case_lost"):
    """A case ended because its device or the host failed, which proves nothing about the case."""

    case: str
    device: str


class AuthorAwaited(Record, tag="author_awaited"):
    """A further process of an author is being started, on the author's cores."""


class AuthorStarted(Record, tag="author_started"):
    """The process has started, or could not; ``lanes`` questions can be answered at the same time."""

    lanes: int


class AuthorFreed(Record, tag="author_freed"):
    """The author has answered for every case that it was given."""


class NothingKnown(Record, tag="nothing_known"):
    """The answer to a LookUp that did not end the batch's cases. Of those with a ``rank`` the one with the
    least runs first.
    """

    batch: str
    rank: float | None = None


class Leased(Record, tag="leased"):
    """The engine holds the lease of a device."""

    device: str


class LeaseAwaited(Record, tag="lease_awaited"):
    """Somebody else has the device that was asked for."""

    device: str


class LeaseFailed(Record, tag="lease_failed"):
    """No device in time (``queue_timeout``), or lost before its runner turned to a case (``infra_error``)."""

    device: str
    outcome: Outcome


class RunOver(Record, tag="run_over"):
    """A device is done with its cases, or had to stop; ``held`` if the lease is still ours."""

    device: str
    held: bool


class LingerOver(Record, tag="linger_over"):
    """A device has been idle for long enough; whether somebody else waits for it."""

    device: str
    is_wanted: bool = True


class Released(Record, tag="released"):
    """The lease of a device is over, and nothing of ours runs on the device."""

    device: str


class Readmitted(Record, tag="readmitted"):
    """A device that LookAfter named is out of quarantine."""

    device: str


class Joined(Record, tag="joined"):
    """Further devices, on these ``grounds`` by target and number of devices; ``kinds`` are the CPU kinds of
    all devices. ``workers`` are the cores of all compile workers, of which further ones come last.
    """

    devices: dict[str, DeviceSite]
    grounds: dict[tuple[str, int], frozenset[str]]
    kinds: dict[str, dict[str, frozenset[str]]]
    workers: tuple[int, ...]
    window: int


class StopAsked(Record, tag="stop_asked"):
    """Nothing new may start; what runs is finished."""


class TrimAsked(Record, tag="trim_asked"):
    """Cases that are planned and not begun are dropped; batches that the source plans later still run."""


Fact = (
    BatchesPlanned
    | CasePrepared
    | CaseBuilt
    | BuildFailed
    | BuildLost
    | PartBuilt
    | CompilerFreed
    | CaseFinished
    | CaseRanWell
    | CaseLost
    | AuthorFreed
    | AuthorAwaited
    | AuthorStarted
    | NothingKnown
    | Leased
    | LeaseAwaited
    | LeaseFailed
    | RunOver
    | LingerOver
    | Released
    | Readmitted
    | Joined
    | StopAsked
    | TrimAsked
)

# ---- commands: what is to be done ----------------------------------------------------------------


class Ask(Record, tag="ask"):
    """Ask the source for up to ``limit`` batches."""

    limit: int


class Place(Record, tag="place"):
    """From now on have these cases prepared and built for this kind of CPU."""

    cases: tuple[str, ...]
    kind: str


class Prepare(Record, tag="prepare"):
    """Have the author elaborate cases and make their inputs; look up their recorded results."""

    cases: tuple[str, ...]


class Build(Record, tag="build"):
    """Have a compile worker build the kernels of these cases, of one builder, in one request."""

    cases: tuple[str, ...]
    worker: int


class LookUp(Record, tag="look_up"):
    """Look for recorded results of a built batch: all of an interleaved one, else the same binaries."""

    batch: str


class Acquire(Record, tag="acquire"):
    """Ask for a device; ``case`` is the first case that needs it."""

    device: str
    case: str


class Run(Record, tag="run"):
    """Have a device that we hold run these cases: of one batch, or of several one after another."""

    device: str
    cases: tuple[str, ...]


class Withdraw(Record, tag="withdraw"):
    """Take back the cases that devices have got and not begun."""


class Judge(Record, tag="judge"):
    """Have the outputs of these cases judged: of kernels by the judge, which answers one Judge at a time."""

    cases: tuple[str, ...]


class Linger(Record, tag="linger"):
    """This device is idle: report when it has been held for long enough."""

    device: str


class Release(Record, tag="release"):
    """Give a device up, or stop asking for it."""

    device: str


class LookAfter(Record, tag="look_after"):
    """From now on have these devices, and no others, probed while they are in quarantine."""

    devices: tuple[str, ...]


class Keep(Record, tag="keep"):
    """A case that must not run here is built: keep what a runner would need."""

    case: str


class Drop(Record, tag="drop"):
    """A case will not be reached: record it as not run."""

    case: str


class Strand(Record, tag="strand"):
    """No device is left for a case: record why ``device``, the last one asked for, did not come; empty if no
    host is left that builds it.
    """

    case: str
    device: str


class GiveUp(Record, tag="give_up"):
    """A case was lost too often: record how its last attempt ended."""

    case: str


Command = (
    Ask
    | Place
    | Prepare
    | Build
    | LookUp
    | Acquire
    | Run
    | Withdraw
    | Judge
    | Linger
    | Release
    | LookAfter
    | Keep
    | Drop
    | Strand
    | GiveUp
)
