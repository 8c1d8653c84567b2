"""The options of ``test``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    Budget,
    BundleFile,
    CheckSync,
    CommitName,
    CompileWorkers,
    DeviceNames,
    GoldenThreads,
    PythonLimit,
    QueueLimit,
    RequireCheck,
    Sanitize,
    TargetName,
    read_python_limit,
    target_at,
)
from tileyard.show.options import (
    FileOption,
    Home,
    Option,
    ShowProgress,
    Switch,
    Text,
    complete,
)
from tileyard.show.values import (
    FilePath,
    read_names,
    read_path,
    read_texts,
    read_time_s,
    refuse_unused,
)
from tileyard.verbs.test.options.suites import (
    CaseSlots,
    Durations,
    DurationsPattern,
    ParameterValues,
    PartOf,
    PieceLength,
    PolicyName,
    Selected,
    Skipped,
    read_some_s,
    read_split,
)

if TYPE_CHECKING:
    from tileyard.verbs.test.options.start import StartTest


class TestOptions(TypedDict, total=False):
    """The options of ``test``."""

    from_: BundleFile
    policy: PolicyName
    select: Selected
    skip: Skipped
    set: ParameterValues
    target: TargetName
    devices: DeviceNames
    slots: CaseSlots
    split: PieceLength
    shard: PartOf
    budget: Budget
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
    toolchain: Annotated[FilePath, FileOption("A toolchain bundle for the steps.")]
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
    logs: Annotated[FilePath, Option("Copy what each case printed to CASE.log.", metavar="DIR")]
    verbose: Annotated[
        bool,
        Switch(
            "Print a line for each case as it ends, and each reason for what did not run.",
            flags=("--verbose", "-v"),
        ),
    ]
    home: Home
    progress: ShowProgress


def start_test(suite: str, given: TestOptions) -> "StartTest":
    """The verb for a suite, empty if it is a bundle. Raises UsageError."""
    from tileyard.verbs.test.options.start import StartTest
    from tileyard.verbs.test.result.records import Wish

    options = complete(TestOptions, given)
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
    return StartTest(
        path=str(named.absolute()),
        is_bundle=bool(bundle),
        wish=Wish(
            policy=options["policy"],
            select=read_names(options["select"]),
            skip=read_names(options["skip"]),
        ),
        target=target_at(options["target"], "", sanitize=options["sanitize"]),
        devices=read_names(options["devices"]),
        slots=options["slots"] or 0,
        split=read_split(options["split"]),
        shard=options["shard"],
        budget_s=read_some_s("--budget", options["budget"]),
        changed=options["changed"],
        is_explained=options["why"],
        durations=read_path(options["durations"]),
        parameters=read_texts(options["set"], "--set"),
        durations_pattern=options["durations_pattern"],
        toolchain=read_path(options["toolchain"]),
        commit=options["commit"],
        rerun_failed=options["rerun_failed"],
        fail_fast=options["fail_fast"],
        retries=options["retries"],
        golden_threads=options["golden_threads"] or 0,
        python_limit_s=read_python_limit(options["python_limit"]),
        require_check=options["require_check"],
        keep_work=options["keep_work"],
        check_sync=options["check_sync"],
        compile_workers=options["compile_workers"],
        queue_limit_s=read_time_s("--queue-limit", options["queue_limit"]),
    )
