"""``check``, ``plan``, ``test`` and ``regress`` from Python: what the commands of these names do."""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, Unpack

from tileyard.api.kernels import carry_on, console_for, find_kernel, printed_on, settings_for, show
from tileyard.api.shown import ShownChecks, ShownPrediction, ShownRegression, ShownSuite, make_shown
from tileyard.base.events import Event
from tileyard.service.conversation import ClientAuthor
from tileyard.show.options import complete, takes
from tileyard.show.values import FilePath, Names, read_names
from tileyard.store.base import RunTime
from tileyard.store.trials import has_records, read_store
from tileyard.verbs.check.command.checking import check_file, check_kernels
from tileyard.verbs.check.options import CheckOptions
from tileyard.verbs.check.view.findings import SyncReport
from tileyard.verbs.regress.command.comparing import Reports, compare
from tileyard.verbs.regress.options.regress import RegressOptions
from tileyard.verbs.regress.result import Regression
from tileyard.verbs.regress.view.regress import print_regression
from tileyard.verbs.test.command.predicting import predict_run
from tileyard.verbs.test.command.session import run_suite
from tileyard.verbs.test.options import PlanOptions, TestOptions
from tileyard.verbs.test.plan.plan import Prediction
from tileyard.verbs.test.result.result import SuiteResult
from tileyard.verbs.test.view.suite import print_suite
from tileyard.workers.author import Author
from tileyard.workers.protocol import AuthorReply, AuthorRequest

T = TypeVar("T")


class Here:
    """This process as the client of an author that lives in it."""

    def __init__(self, author: Author) -> None:
        self._author = author

    def tell_event(self, event: Event) -> None:
        """Do nothing: no one receives events here."""

    async def ask(self, request: AuthorRequest) -> AuthorReply:
        """Answer it at once."""
        return self._author.answer(request)


@takes(CheckOptions)
def check(kernel: object, **options: Unpack[CheckOptions]) -> SyncReport:
    """Check the synchronization of a kernel: asynchronous copies, barriers, and roles that wait for
    each other.

    The kernel is given as in ``tileyard.tune``; for ``"file.py"`` all of its kernels are checked.
    ``report.kernels`` has one record per kernel, with its ``findings``. A function of this process is checked
    here, and once the limit has passed no further sizes are checked; the check of a file is stopped then.

    Raises TileyardError if the kernel cannot be checked.
    """
    given = complete(CheckOptions, options)
    settings = settings_for(given["home"])
    found = find_kernel(kernel, {}, settings)
    if found.author is None:
        asked = check_file(Path(found.file), found.name, given, settings)
        return make_shown(ShownChecks, _run(asked))
    function = found.author.kernels[found.name].recipe.function
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    author = ClientAuthor(Here(found.author), settings.cores)
    asked = check_kernels(author, file, found.name, given, ends_itself=True)
    return make_shown(ShownChecks, _run(asked))


def _run(asked: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, even if a loop is already running, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(asked)
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()

    async def work() -> T:
        begun.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await asked

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(asyncio.run, work())
        try:
            return ended.result()
        except KeyboardInterrupt:
            loop, task = begun.result()
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)
            raise


@takes(PlanOptions)
def plan(suite: FilePath = None, **options: Unpack[PlanOptions]) -> Prediction:
    """Predict how long a suite runs on a number of slots, what limits it, and how long usual splits
    would take.

    Times come from the store, or from a file of another tool with ``durations``; then no suite is
    needed. Nothing is built, and nothing is run except the program that lists a suite's cases.

    Raises TileyardError if there is no such suite, or no case is selected.
    """
    given = complete(PlanOptions, options)
    settings = settings_for(given["home"])

    def read_run_times() -> Sequence[RunTime]:
        if not settings.home.is_dir() or not has_records(settings.home):
            return ()
        with read_store(settings.home) as store:
            return store.list_run_times()

    path = None if suite is None else Path(suite)
    return make_shown(ShownPrediction, predict_run(path, given, settings, read_run_times))


@takes(TestOptions)
def test(suite: FilePath = None, **options: Unpack[TestOptions]) -> SuiteResult:  # noqa: PT028 - no test
    """Run a suite: every selected case is built, run and checked, and ends with one verdict.

    The suite is a ``suite.toml``, a folder, or a Python file of kernels; ``result.verdicts`` has
    one record per case, ``result.exit_status`` is that of the command.

    Raises TileyardError if the suite cannot be read, nothing is selected, or a report cannot be written.
    """
    given = complete(TestOptions, options)
    settings = settings_for(given["home"])
    console = console_for(given["progress"])
    ran = run_suite("" if suite is None else str(suite), given, settings, carry_on(console))
    show(printed_on(console), print_suite, ran.result, ran.rerun, str(given["summary"] or ""))
    if ran.errors:
        raise ran.errors[0]
    return make_shown(ShownSuite, ran.result)


test.__test__ = False  # type: ignore[attr-defined]  # pytest takes functions of this name for tests


@takes(RegressOptions)
def regress(
    base: str | None = None,
    head: str | None = None,
    files: Names = None,
    **options: Unpack[RegressOptions],
) -> Regression:
    """Time the same kernels or programs of two versions against each other.

    Base and head are git revisions, environments or pass options, bundles or recorded runs, as for
    the command, and files are ``"file.py::name"``, a suite, or with ``exec`` scripts.
    ``result.exit_status`` is that of the command.

    Raises TileyardError if a side has no kernel, or cannot be compared.
    """
    given = complete(RegressOptions, options)
    settings = settings_for(given["home"])
    reports = Reports(given)
    console = console_for(given["progress"])
    sides = [side for side in (base, head) if side is not None]
    result = compare(sides, read_names(files), given, settings, carry_on(console))
    show(printed_on(console), print_regression, result)
    reports.write(result, settings.home)
    return make_shown(ShownRegression, result)
