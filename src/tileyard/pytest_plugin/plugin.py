"""Takes a pytest run over once ``--tileyard`` is given: alone, or as a part of pytest-xdist's."""

import fcntl
import os
import time
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tileyard.artifacts.copying import remove_folder
from tileyard.base.errors import TileyardError
from tileyard.base.model import Device
from tileyard.base.modes import make_folder, open_file
from tileyard.base.settings import Settings, read_settings
from tileyard.base.wording import count_of
from tileyard.devices.foreign import ForeignQueue, is_queue
from tileyard.devices.locks import prepare_locks
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.borrowing import Borrowing, borrows, choose_queue
from tileyard.pytest_plugin.declared import DeclaredSteps
from tileyard.pytest_plugin.far import FAR, FarTests
from tileyard.pytest_plugin.far_records import Step
from tileyard.pytest_plugin.options import (
    PluginOptions,
    is_distributed,
    read_marked_limit,
    read_options,
)
from tileyard.pytest_plugin.preparing import Preparing, prepare_shares, read_shares
from tileyard.pytest_plugin.recording import (
    Recording,
    TrialWriter,
    read_durations,
    sort_longest_first,
)
from tileyard.pytest_plugin.rehearsing import AHEAD, run_ahead
from tileyard.pytest_plugin.running import Runner
from tileyard.service.bench import claim_run_name
from tileyard.service.choosing import choose_devices
from tileyard.store.trials import open_store
from tileyard.targets.registry import make_target
from tileyard.verbs.test.view.words import require_writable

SHARED = "tileyard"
"""The key of the data that pytest-xdist's controller sends its processes."""
SHARES = "shares"
RUNS = "pytest"
"""Folder below the data directory that contains a directory for each run."""
KEPT_RUNS = 5
"""Number of runs whose directories are kept."""


def activate(config: pytest.Config) -> Active:
    """Read options and settings, register the plugins that carry out the run. Raises UsageError of pytest."""
    try:
        settings = read_settings(os.environ, Path.cwd())
        options = read_options(config, settings)
        make_target(options.target, settings.plugins)
        far: FarTests | None = config.pluginmanager.get_plugin(FAR)
        if far is not None:
            return far.activate(options, settings)
        queue = choose_queue(options, settings, config)
        devices = _choose_devices(options, settings)
        shared: dict[str, Any] | None = getattr(config, "workerinput", {}).get(SHARED)
        if shared is not None:
            active = Active(options, settings, devices, Path(shared["folder"]))
            worker = XdistWorker(active, shared, _worker_number(config))
            config.pluginmanager.register(worker, "tileyard-run")
            return active
        if options.report:
            require_writable(Path(options.report))
        began = time.monotonic()
        store = open_store(settings.make_home())
        config.add_cleanup(store.close)
        run = claim_run_name(settings.home, store)
        active = Active(options, settings, devices, settings.home / RUNS / run)
        writer = TrialWriter(settings.home, store, run, config.rootpath)
        recording = Recording(run, began, writer, options.report)
        durations = read_durations(store)
    except TileyardError as error:
        raise pytest.UsageError(str(error)) from None
    plugin: object
    if is_distributed(config):
        if config.getoption("maxschedchunk", None) is None:
            config.option.maxschedchunk = 1  # otherwise one process would get all of the longest
        plugin = XdistController(active, recording, began, durations)
    else:
        plugin = Alone(active, recording, durations, queue)
    config.pluginmanager.register(recording, "tileyard-recording")
    config.pluginmanager.register(plugin, "tileyard-run")
    return active


class Alone:
    """A run in which this process collects, prepares, and starts every test."""

    def __init__(
        self,
        active: Active,
        recording: Recording,
        durations: Mapping[str, float],
        queue: ForeignQueue | None,
    ) -> None:
        self._active = active
        self._recording = recording
        self._durations = durations
        self._queue = queue

    def pytest_report_header(self) -> str:
        """What the tests run on."""
        at_once = f"{count_of(self._active.options.workers, 'test')} at a time"
        return _describe(self._active, at_once, self._queue)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Sort the longest first."""
        if not _is_ordered(config):
            sort_longest_first(items, self._durations, 1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Prepare everything, then run the tests."""
        config = session.config
        if config.option.collectonly or (
            session.testsfailed and not config.option.continue_on_collection_errors
        ):
            return None  # pytest's own loop decides about these
        active, recording = self._active, self._recording
        recording.selected = {item.nodeid for item in session.items}
        _make_folder(active.folder)
        results = Preparing(
            active.settings, active.settings.cores, active.folder, active.options.build_limit_s
        ).run(_declare(active, session.items))
        active.results = {result.step: result for result in results}
        _share_temporary(config)
        run_ahead(session.items, active, self)
        recording.find_steps = lambda: tuple(active.results.values())
        far: list[pytest.Item] = []
        if self._queue is not None:
            far = [item for item in session.items if borrows(item, active, self._queue)]
        elsewhere = set(far)
        own = [item for item in session.items if item not in elsewhere]
        if own:
            with closing(Runner(own, active, self, recording.began)) as runner:
                recording.interrupted = runner.interrupted
                runner.run(own, session)
        if self._queue is not None and far:
            Borrowing(self._queue, active, recording, self).run(far, session)
        return True


class XdistController:
    """The process that distributes tests: it knows all results and runs nothing."""

    def __init__(
        self, active: Active, recording: Recording, began: float, durations: Mapping[str, float]
    ) -> None:
        self._active = active
        folders = (active.folder / SHARES, active.folder / AHEAD)
        recording.find_steps = lambda: tuple(chain.from_iterable(map(read_shares, folders)))
        self._shared = {
            "folder": str(active.folder),
            "durations": dict(durations),
            "began": began,
        }

    def pytest_report_header(self, config: pytest.Config) -> str:
        """What the tests run on."""
        processes = len(config.getoption("tx", None) or ())
        return _describe(self._active, count_of(processes, "worker process"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401 - pytest-xdist's
        """Send a process its folder and what is known."""
        if not self._active.folder.exists():
            _make_folder(self._active.folder)
        node.workerinput[SHARED] = self._shared


class XdistWorker:
    """One of pytest-xdist's processes: it prepares its share, and starts the tests assigned to it."""

    _runner: Runner  # once tests run

    def __init__(self, active: Active, shared: Mapping[str, Any], number: tuple[int, int]) -> None:
        self._active = active
        self._shared = shared
        self._own, self._count = number
        active.processes = self._count

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Sort the longest first, equally in all processes."""
        if not _is_ordered(config):
            sort_longest_first(items, self._shared["durations"], self._count)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Prepare before the first test."""
        if not session.config.option.collectonly and session.items:
            active = self._active
            cores = active.settings.cores
            own = cores[self._own :: self._count] or (cores[self._own % len(cores)],)
            results = prepare_shares(
                _declare(active, session.items),
                active.folder / SHARES,
                self._own,
                self._count,
                Preparing(active.settings, own, active.folder, active.options.build_limit_s).run,
            )
            active.results = {result.step: result for result in results}
            _share_temporary(session.config)
            share = partial(
                prepare_shares, folder=active.folder / AHEAD, own=self._own, count=self._count
            )
            run_ahead(session.items, active, self, share)
            self._runner = Runner(session.items, active, self, self._shared["began"])
            with closing(self._runner):
                return (yield)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run a test in a process of its own."""
        self._runner.run([item])
        return True


# ---- the steps of starting ------------------------------------------------------------------------


def _choose_devices(options: PluginOptions, settings: Settings) -> tuple[Device, ...]:
    names = [name for name in options.devices if not is_queue(name)]
    if options.devices and not names:
        return ()  # tests that need one go through the queue
    devices = choose_devices(names, options.target, settings)
    for device in devices:
        prepare_locks(device)
    return devices


def _make_folder(folder: Path) -> None:
    """Make the run's own directory, locked while the run lasts; those of ended runs are removed."""
    make_folder(folder)
    lock = open_file(folder / "alive", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_SH)  # until this process ends
    runs = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in runs[:-KEPT_RUNS]:
        with suppress(OSError):
            other = os.open(path / "alive", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(path)
            finally:
                os.close(other)


def _worker_number(config: pytest.Config) -> tuple[int, int]:
    """The index of this process, a replacement's modulo the number of processes, and that number."""
    given: Mapping[str, Any] = getattr(config, "workerinput", {})
    count = int(given["workercount"])
    digits = "".join(filter(str.isdecimal, str(given["workerid"])))
    return int(digits or 0) % count, count


def _declare(active: Active, items: list[pytest.Item]) -> list[Step]:
    """Read the markers of all tests. Raises UsageError of pytest for an invalid limit."""
    options = active.options
    active.declared = DeclaredSteps(items, options.target, options.build_limit_s)
    try:
        for item in items:
            read_marked_limit(item, options.limit_s)
    except TileyardError as error:
        raise pytest.UsageError(str(error)) from None
    return list(active.declared.steps.values())


def _share_temporary(config: pytest.Config) -> None:
    """Let all tests put their files below one directory, as in a single process."""
    factory = getattr(config, "_tmp_path_factory", None)
    if factory is not None:
        factory.getbasetemp()


def _is_ordered(config: pytest.Config) -> bool:
    names = ("failedfirst", "newfirst", "stepwise")
    return any(config.getoption(name, False) for name in names)


def _describe(active: Active, at_once: str, queue: ForeignQueue | None = None) -> str:
    names = ", ".join(device.name for device in active.devices)
    parts = [f"target {active.options.target}"]
    if names or queue is None:
        parts += [f"devices {names}" if names else "no devices", at_once]
    if queue is not None:
        tests = "other tests" if names else "tests"
        parts += [f"{tests} run as tasks of queue:{queue.name}, {queue.slots} at a time"]
    return f"tileyard: {', '.join(parts)}; in {active.folder}"
