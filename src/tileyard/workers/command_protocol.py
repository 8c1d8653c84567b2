"""Defines the messages between engine and step host."""

from tileyard.base.model import (
    WHOLE,
    BuildKey,
    Digest,
    GoldenKey,
    GoldenPart,
    OutputCheck,
    Record,
    Step,
)
from tileyard.processes.steps import StepEnd
from tileyard.targets.command.given import StepSite
from tileyard.workers.protocol import BatchRan, CaseBegan, CaseRan, Judged, Question, RunBatch


class StepDone(Record, tag="step_done"):
    """Answer to DoStep and FindGolden. ``end``: None if the result was known; ``message``: what is wrong."""

    end: StepEnd | None = None
    tree: Digest = Digest("")
    message: str = ""


class FindGolden(Question[StepDone], tag="find_golden"):
    """Ask for the tree that an earlier step with this key has made; the answer has none if unknown."""

    key: GoldenKey


class FilesDigested(Record, tag="files_digested"):
    """Answer to DigestFiles."""

    digest: str


class Done(Record, tag="done"):
    """Answer to PrepareFolder and StopBatches."""


class HostFailed(Record, tag="host_failed"):
    """A request could not be carried out, as on a full disk. ``is_users``: the user's files are the cause."""

    message: str
    is_users: bool = False


class DoStep(Question[StepDone], tag="do_step"):
    """Run a program of a case that needs no device. ``places`` and ``env`` are what it receives,
    ``cwd`` its directory unless it names its own, ``title`` its name in the log. ``golden`` is the
    tree at ``{golden}``, of which the case uses ``part``, ``build`` the artifact at ``{build}``.
    With a ``key``, ``{out}`` is kept as a tree, and an earlier one of that key answers.
    """

    step: Step
    places: dict[str, str]
    env: dict[str, str]
    cwd: str
    log: str
    limit_s: float
    title: str = ""
    golden: Digest = Digest("")
    part: GoldenPart = WHOLE
    build: BuildKey = BuildKey("")
    key: GoldenKey = GoldenKey("")


class DigestFiles(Question[FilesDigested], tag="digest_files"):
    """Ask for the digest of the content and names of files: globs, directories or files below ``folder``."""

    folder: str
    patterns: tuple[str, ...]


class StepIdentified(Record, tag="step_identified"):
    """Answer to IdentifyStep: the digest of what the step uses, and the reasons why it may not be all."""

    uses: str
    doubts: tuple[str, ...] = ()


class IdentifyStep(Question[StepIdentified], tag="identify_step"):
    """Identify what a step on this site uses outside of its suite; other fields as in DoStep. Without a
    folder of its own, one that ``is_early`` runs in the suite's folder, others in the case's work directory.
    """

    step: Step
    site: StepSite
    threads: int
    is_early: bool = False
    golden: Digest = Digest("")
    part: GoldenPart = WHOLE
    build: BuildKey = BuildKey("")


class PrepareFolder(Question[Done], tag="prepare_folder"):
    """Make a new folder for a case, with a part of a tree as its data."""

    folder: str
    golden: Digest
    part: GoldenPart = WHOLE


class CompareOutputs(Question[Judged], tag="compare_outputs"):
    """Compare a case's outputs with its part of the golden step's result."""

    work: str
    golden: Digest
    part: GoldenPart
    checks: tuple[OutputCheck, ...]


class CheckBatch(Question[BatchRan], tag="check_batch"):
    """Check cases by each entry's hot run. Answers: CaseBegan and CaseRan for each, then BatchRan."""

    run: RunBatch
    threads: int


class StopBatches(Question[Done], tag="stop_batches"):
    """Begin no further case of the batches that run. Each of them still answers BatchRan."""


HostRequest = (
    DoStep
    | FindGolden
    | StopBatches
    | DigestFiles
    | IdentifyStep
    | PrepareFolder
    | CompareOutputs
    | RunBatch
    | CheckBatch
)
HostReply = (
    StepDone
    | Done
    | FilesDigested
    | StepIdentified
    | Judged
    | HostFailed
    | CaseBegan
    | CaseRan
    | BatchRan
)


class Asked(Record):
    """A request with a number, which separates its answers from those of other requests."""

    number: int
    request: HostRequest


class Told(Record):
    """An answer; a RunBatch has several, of which BatchRan is the last."""

    number: int
    reply: HostReply
