"""The options of ``test`` and of other verbs about suites, and the request to the engine. Light to import."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from tileyard.base.errors import UsageError
from tileyard.service.verbs import Verb
from tileyard.show.kernel_options import (
    BundleFile,
    CheckSync,
    CommitName,
    CompileWorkers,
    DeviceNames,
    GoldenThreads,
    HostNames,
    PythonLimit,
    QueueLimit,
    Report,
    RequireCheck,
    Sanitize,
    TargetName,
    target_at,
)
from tileyard.show.options import (
    FileOption,
    Home,
    Option,
    ShowProgress,
    Switch,
    Text,
    TimeOption,
    complete,
    fill,
    read_options,
)
from tileyard.show.values import FilePath, Time, refuse_unused

if TYPE_CHECKING:
    from tileyard.verbs.test.result.result import SuiteResult  # noqa: F401 - of the verb, in quotes
from functools import partial

from tileyard.base.model import Record
from tileyard.show.kernel_options import BUDGET
from tileyard.show.options import NamesOption
from tileyard.show.values import Names, Pairs, read_texts, read_time_s

EVERYTHING = "full"
"""The policy that selects all cases."""


class Wish(Record):
    """The requested selection. ``rerun`` are the ids of cases to run again, None if all may run.

    ``select`` and ``skip`` contain texts as ``choosing.find_meant`` reads them: a case must match one
    of ``select``, if there is any, and none of ``skip``.
    """

    policy: str = EVERYTHING
    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    rerun: tuple[str, ...] | None = None


def read_some_s(given: Time | None, option: str) -> float:
    """A time, 0 if none is requested; a time of length 0 is refused."""
    seconds = read_time_s(given, option) or 0.0
    if given is not None and not seconds:
        raise UsageError(f"{option}: {given!r} holds no case")
    return seconds


def _read_split(given: Time, option: str) -> float | Literal["auto", "off"]:
    """Maximum length of pieces: a time, or one of these words."""
    match given:
        case "auto":
            return "auto"
        case "off":
            return "off"
        case _:
            return read_some_s(given, option)


PolicyName = Annotated[
    str, Option("full, smoke, or a policy of the suite's own.", default=EVERYTHING)
]
Selected = Annotated[
    Names,
    NamesOption(
        "Cases by id, glob or tag; also joined, as in 'rows and not f16'.",
        metavar="TEXT",
        flags=("--select", "--case", "-k"),
    ),
]
Skipped = Annotated[
    Names, NamesOption("Leave these cases out, named as for --select.", metavar="TEXT")
]
ONLY_CLASS = "Only what ran on devices of this class."
EXPECTED_TIMES = "Times of cases: CSV, .test_durations, JUnit, log, or a folder of JUnit files."
Durations = Annotated[
    FilePath,
    FileOption(
        EXPECTED_TIMES,
        metavar="FILE|DIR",
    ),
]
SuiteBudget = Annotated[
    Time | None,
    TimeOption(f"{BUDGET}; the most valuable cases that fit are chosen.", read=read_some_s),
]
ToolchainFile = Annotated[FilePath, FileOption("A toolchain bundle for the steps.")]
PartOf = Annotated[
    str,
    Text(
        "Run part I of N: parts have equal expected time with --durations, else equal numbers of cases.",
        metavar="I/N",
    ),
]
SlotsOption = partial(Option, metavar="N", least=1)
CaseSlots = Annotated[
    int | None, SlotsOption("Number of cases that run at once; by default one for each core.")
]
ParameterValues = Annotated[
    Pairs,
    Option(
        "A value of a parameter of the suite; by default its first.",
        metavar="NAME=VALUE",
        flags=("--set",),
        read=read_texts,
    ),
]
DurationsPattern = Annotated[
    str,
    Text(
        "Expression for the lines of --durations that have a time: with (?P<case>...) and (?P<seconds>...).",
        metavar="REGEX",
    ),
]
PieceLength = Annotated[
    Time,
    Option(
        "Maximum length of a piece of a testcase.",
        metavar="auto|off|TIME",
        default="auto",
        read=_read_split,
    ),
]


class TestOptions(TypedDict, total=False):
    """The options of ``test``."""

    from_: BundleFile
    policy: PolicyName
    select: Selected
    skip: Skipped
    set: ParameterValues
    target: TargetName
    devices: DeviceNames
    hosts: HostNames
    slots: CaseSlots
    split: PieceLength
    shard: PartOf
    budget: SuiteBudget
    changed: Annotated[
        str,
        Text(
            "Skip cases that passed in run RUN, or in any run, with identical inputs.",
            metavar="RUN|any",
        ),
    ]
    why: Annotated[bool, Switch("Print for each case why --changed runs or skips it.")]
    durations: Durations
    durations_pattern: DurationsPattern
    rerun_failed: Annotated[
        bool, Switch("Run the cases that failed or did not run in the last run of the suite.")
    ]
    fail_fast: Annotated[
        bool,
        Switch("Start no new cases after the first failure.", flags=("--fail-fast", "-x")),
    ]
    retries: Annotated[int | None, Option("Number of times to run a failed case again.", least=0)]
    toolchain: ToolchainFile
    commit: CommitName
    require_check: RequireCheck
    check_sync: CheckSync
    sanitize: Sanitize
    golden_threads: GoldenThreads
    python_limit: PythonLimit
    compile_workers: CompileWorkers
    queue_limit: QueueLimit
    keep_work: Annotated[bool, Switch("Keep the work folders of passed cases, too.")]
    junit: Annotated[FilePath, FileOption("Write JUnit XML.")]
    summary: Annotated[FilePath, FileOption("Write the result as JSON.")]
    report: Report
    logs: Annotated[FilePath, FileOption("Copy what each case printed to CASE.log.", metavar="DIR")]
    verbose: Annotated[
        bool,
        Switch(
            "Print a line for each case as it ends, and each reason for what did not run.",
            flags=("--verbose", "-v"),
        ),
    ]
    home: Home
    progress: ShowProgress


class StartTest(Verb["SuiteResult"], kw_only=True):
    """Begin a run of a suite: of ``path``, the cases that ``wish`` selects.

    ``slots`` is the number of cases of programs that run at once if no ``devices`` are named, None for one
    on each core; for kernels on a CPU it is the number of parts of the cores. ``split`` is the maximum
    length of a piece, in seconds. ``shard`` is ``2/8`` for the second of eight. ``budget_s`` is 0 for no
    budget. ``changed`` leaves out the cases that the run of that name, or ``any``, has proven, and with
    ``is_explained`` each case states what decided; ``rerun_failed`` leaves out those that did not fail in
    their last run. ``durations`` is a file of times measured elsewhere,
    ``durations_pattern`` selects its lines with times if it is a log of an unknown kind, ``toolchain`` is
    a bundle that steps use, which must be of ``commit`` if that is given. ``is_bundle`` is set if ``path``
    is a bundle of a suite; with ``pack_to`` nothing is run, and such a bundle is written there.
    ``retries`` None means the policy's value. With ``require_check`` a case that nothing was compared with
    fails. Without ``keep_work`` the folders of cases that passed are removed. With ``fail_fast`` nothing
    is begun after the first failure that gates. ``check_sync`` is as in a yard. ``parameters`` are values
    of the suite's parameters; the others have their first value.
    """

    opener = "tileyard.verbs.test.plan.suites:open_suite"
    result = "tileyard.verbs.test.result.result:SuiteResult"
    kept = (
        "finished cases are recorded; --changed any skips those that passed with the same content"
    )

    path: str
    wish: Wish
    slots: int | None
    split: float | Literal["auto", "off"]
    shard: str
    budget_s: float
    changed: str
    parameters: dict[str, str]
    is_explained: bool
    durations: str
    durations_pattern: str
    toolchain: str
    commit: str
    is_bundle: bool
    pack_to: str = ""
    rerun_failed: bool
    fail_fast: bool
    retries: int | None
    require_check: bool
    keep_work: bool
    check_sync: bool | None
    compile_workers: int | None
    queue_limit_s: float


def start_test(suite: str, given: TestOptions) -> StartTest:
    """The verb for a suite, empty if it is a bundle. Raises UsageError."""
    options = complete(TestOptions, given)
    values = read_options(TestOptions, options)
    bundle = options["from_"]
    if bool(suite) == bool(bundle):
        raise UsageError("give a suite, or a bundle with --from")
    if options["devices"]:
        refuse_unused("with --devices: as many cases run at once", {"--slots": options["slots"]})
    if bundle:
        refuse_unused("with --from: its kernels are built", {"--sanitize": options["sanitize"]})
    if not (options["toolchain"] or bundle):
        refuse_unused("without --toolchain or --from", {"--commit": options["commit"]})
    if options["durations"] is None:
        pattern = {"--durations-pattern": options["durations_pattern"]}
        refuse_unused("without --durations", pattern)
    named = Path(suite or bundle or "")
    if not named.exists():
        raise UsageError(f"there is no suite {named}")
    return fill(
        StartTest,
        values,
        path=str(named.absolute()),
        is_bundle=bool(bundle),
        wish=fill(Wish, values),
        target=target_at(options["target"], "", sanitize=options["sanitize"]),
        is_explained=options["why"],
        parameters=values["set"],
    )


class PlanOptions(TypedDict, total=False):
    """The options of ``plan``."""

    durations: Durations
    durations_pattern: DurationsPattern
    slots: CaseSlots
    split: PieceLength
    case_time: Annotated[
        Time | None, TimeOption("Length of the cases of imported testcases.", read=read_some_s)
    ]
    startup: Annotated[
        Time | None,
        TimeOption(
            "Start-up time of a process, before its first case; by default as in the suite's last run."
        ),
    ]
    launch: Annotated[
        Time | None,
        TimeOption(
            "The part of --startup in which no other process can start; by default as in the "
            "suite's last run."
        ),
    ]
    lead: Annotated[
        Time | None,
        TimeOption(
            "Time before the first process can start; by default as in the suite's last run."
        ),
    ]
    per: Annotated[
        Literal["piece", "case"],
        Option("Run one process per piece, or one per case.", default="piece"),
    ]
    policy: PolicyName
    select: Selected
    skip: Skipped
    set: ParameterValues
    target: TargetName
    class_: Annotated[str, Text(ONLY_CLASS, metavar="CLASS")]
    shard: PartOf
    budget: SuiteBudget
    home: Home
