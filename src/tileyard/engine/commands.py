"""What the engine's state is told, and what it orders. Plain values; nothing here acts."""

from tileyard.model import Batch, BuildKey, Record

# ---- facts: what has happened ------------------------------------------------------------------


class BatchesPlanned(Record, tag="batches_planned"):
    """The source answered an Ask; ``exhausted`` says that it has nothing further for now."""

    batches: tuple[Batch, ...]
    exhausted: bool


class CasePrepared(Record, tag="case_prepared"):
    """The author is done with a case; ``built`` says that its artifact already exists."""

    case: str
    build: BuildKey
    built: bool


class CaseBuilt(Record, tag="case_built"):
    """A compile worker made the artifact of a case."""

    case: str
    worker: int


class BuildFailed(Record, tag="build_failed"):
    """A compile worker ended a build without an artifact; the case has ended."""

    case: str
    worker: int


class CaseFinished(Record, tag="case_finished"):
    """A case reached its outcome outside the build: in the author, by look-up, or in a runner."""

    case: str


class AuthorFreed(Record, tag="author_freed"):
    """The author can take another case."""


class BatchRun(Record, tag="batch_run"):
    """A runner is done with a batch; every case of it has ended."""

    batch: str
    device: str


class StopAsked(Record, tag="stop_asked"):
    """Nothing new is to be started; what runs is finished."""


class TrimAsked(Record, tag="trim_asked"):
    """What is planned and not begun is to be dropped; what the source asks later goes on."""


Fact = (
    BatchesPlanned
    | CasePrepared
    | CaseBuilt
    | BuildFailed
    | CaseFinished
    | AuthorFreed
    | BatchRun
    | StopAsked
    | TrimAsked
)

# ---- commands: what is to be done ----------------------------------------------------------------


class Ask(Record, tag="ask"):
    """Ask the source for up to ``limit`` batches."""

    limit: int


class Prepare(Record, tag="prepare"):
    """Have the author elaborate a case and make its inputs; look up what is known of it."""

    case: str


class Build(Record, tag="build"):
    """Have a compile worker build a case's kernel."""

    case: str
    worker: int


class Run(Record, tag="run"):
    """Have the runner of a device run a batch: those of its ``cases`` that are still to be run."""

    batch: str
    cases: tuple[str, ...]
    device: str


class Drop(Record, tag="drop"):
    """A case will not be reached: record it as not run."""

    case: str


Command = Ask | Prepare | Build | Run | Drop
