"""The step host: one process runs side by side all programs that need no device, each served by a thread."""

import contextlib
import functools
import os
import sys
import threading
import traceback
from collections import defaultdict
from pathlib import Path
from typing import assert_never

from tileyard.artifacts.copying import remove_folder, scratch_folder
from tileyard.artifacts.digests import FileDigests
from tileyard.artifacts.footprint import keep_by_key
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.model import Digest, GoldenKey
from tileyard.base.modes import make_folder
from tileyard.processes.step_keepers import warm
from tileyard.processes.steps import StepEnd, StepOrder, describe_end, insist_on
from tileyard.processes.wire import Channel
from tileyard.targets.command.given import fill, fill_argv, find_site
from tileyard.workers.command_protocol import (
    Asked,
    CheckBatch,
    CompareOutputs,
    DigestFiles,
    Done,
    DoStep,
    FilesDigested,
    FindGolden,
    HostFailed,
    HostReply,
    HostRequest,
    IdentifyStep,
    PrepareFolder,
    StepDone,
    StepIdentified,
    StopBatches,
    Told,
)
from tileyard.workers.command_runs import (
    TEMPORARY,
    CheckRuns,
    CommandRuns,
    Stores,
    make_case_folder,
    step_environment,
)
from tileyard.workers.protocol import BatchRan, Judged, RunBatch
from tileyard.workers.step_identity import NOWHERE, StepIdentities, Surroundings

GOLDEN = "golden-tree"
"""The kind of record that names the tree that a golden step has made."""


class StepHost:
    """Answers requests, each in a thread of its own. ``home`` is the directory with the object store."""

    def __init__(self, home: Path, channel: Channel) -> None:
        self._stores = Stores(home)
        self._home = home
        self._objects, self._trees = self._stores.objects, self._stores.trees
        self._stopped = threading.Event()
        self._channel = channel
        self._sending = threading.Lock()
        self._digests = FileDigests()
        self._identities = StepIdentities(self._digests, self._objects)
        self._alone: defaultdict[GoldenKey, threading.Lock] = defaultdict(threading.Lock)

    def serve(self, asked: Asked) -> None:
        """Carry out one request and send its answers."""
        try:
            reply = self._answer(asked.number, asked.request)
        except TileyardError as error:
            reply = HostFailed(message=str(error), is_users=isinstance(error, UsageError))
        except OSError as error:
            reply = HostFailed(message=f"{error.filename or self._home}: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - who asked would wait for ever
            traceback.print_exc()
            reply = HostFailed(message=f"{type(error).__name__}: {error}")
        self._tell(asked.number, reply)

    def _answer(self, number: int, request: HostRequest) -> HostReply:
        match request:
            case DoStep():
                return self._do_step(request)
            case FindGolden(key=key):
                return StepDone(tree=self._find_tree(key))
            case DigestFiles(folder=folder, patterns=patterns):
                return FilesDigested(digest=self._digests.digest(Path(folder), patterns))
            case IdentifyStep():
                return self._identify(request)
            case PrepareFolder(folder=folder, golden=golden, part=part):
                make_case_folder(self._home / folder, golden, self._trees, part)
                return Done()
            case CompareOutputs():
                return self._compare(request)
            case StopBatches():
                # Batches that come after this one still run.
                self._stopped.set()
                self._stopped = threading.Event()
                return Done()
            case RunBatch():
                tell = functools.partial(self._tell, number)
                CommandRuns(self._stores, tell, self._stopped.is_set).run(request)
                return BatchRan(batch=request.batch.id)
            case CheckBatch(run=batch, threads=threads):
                tell = functools.partial(self._tell, number)
                CheckRuns(self._stores, tell, threads).run(batch)
                return BatchRan(batch=batch.batch.id)
            case _:
                assert_never(request)

    def _do_step(self, request: DoStep) -> StepDone:
        if not request.key:
            end, message = self._run(request, Path(request.cwd).parent / TEMPORARY)
            return StepDone(end=end, message=message)
        with self._alone[request.key]:  # cases that share it wait, and find it
            return self._make_tree(request)

    def _make_tree(self, request: DoStep) -> StepDone:
        """The result of the step's last run with this key, or of a new run."""
        if known := self._find_tree(request.key):
            return StepDone(tree=known)
        scratch = self._home / "tmp"
        make_folder(scratch)
        with scratch_folder(scratch) as folder:
            out, temporary = folder / "out", folder / TEMPORARY
            make_folder(out)
            end, message = self._run(request, temporary, out)
            if message:
                return StepDone(end=end, message=message)
            try:
                tree = self._trees.put(out)
            except UsageError as error:
                return StepDone(end=end, message=f"left what cannot be kept: {error}")
            if not self._has_files(tree):
                return StepDone(end=end, message=_describe_nothing(request, end))
        self._objects.put_record(GOLDEN, request.key, tree.encode())
        return StepDone(end=end, tree=tree)

    def _find_tree(self, key: GoldenKey) -> Digest:
        """The tree that a step with this key has made; empty if there is none, or it is damaged."""
        known = self._objects.get_record(GOLDEN, key)
        tree = Digest("" if known is None else known.decode())
        return tree if tree and self._has_files(tree) else Digest("")

    def _has_files(self, tree: Digest) -> bool:
        return self._trees.has(tree) and self._trees.listing(tree).has_files

    def _run(
        self, request: DoStep, temporary: Path, out: Path | None = None
    ) -> tuple[StepEnd, str]:
        """How the program ended, and one line about the failure, empty if there was none."""
        make_folder(temporary)
        made = self._stores.find_made(request.golden, request.build, request.part)
        step, places = request.step, {**find_site().places, **request.places, **made}
        if out is not None:
            places["out"] = str(out)
        order = StepOrder(
            argv=fill_argv(step.argv, places),
            env=step_environment(step, request.env, places, temporary),
            cwd=fill(step.cwd, places) or request.cwd,
            log=request.log,
            title=request.title,
            limit_s=request.limit_s,
        )

        def clear() -> None:
            for folder in filter(None, (temporary, out)):
                remove_folder(folder)
                make_folder(folder)

        end = insist_on(order, clear)
        return end, "" if end.ok else describe_end(end, order)

    def _identify(self, request: IdentifyStep) -> StepIdentified:
        """Identify what a step uses; its parts are stored, so that changes can be named later."""
        made, site = (
            self._stores.find_made(request.golden, request.build, request.part),
            request.site,
        )
        work = made.get("golden", "")  # its work directory begins as a copy of that
        shared = find_site()
        places = {**shared.places, **site.places, **made, "threads": str(request.threads)}
        around = Surroundings(
            places={**places, "work": work} if work else places,
            cwd=site.suite if request.is_early else work or NOWHERE,
            suite=site.suite,
            env={**shared.env, **site.env},
        )
        use = self._identities.identify(request.step, around, os.environ)
        uses = keep_by_key(use, "uses", self._objects)
        return StepIdentified(uses=uses, doubts=tuple(use.doubts))

    def _compare(self, request: CompareOutputs) -> Judged:
        # NumPy takes a tenth of a second to load, and many suites compare with programs of their own.
        from tileyard.workers.output_checks import compare_output_files

        golden = self._trees.path(request.golden, request.part.path) if request.golden else None
        return compare_output_files(Path(request.work), golden, request.checks)

    def _tell(self, number: int, reply: HostReply) -> None:
        with self._sending, contextlib.suppress(OSError):  # the engine is gone
            self._channel.send(Told(number=number, reply=reply))


def _describe_nothing(request: DoStep, end: StepEnd) -> str:
    said = f"ended with exit code 0 after {end.seconds:.2f} s and left {{out}} empty"
    if any("runpy.run_path" in text and "run_name" not in text for text in request.step.argv):
        return f"{said}; what a script does for __main__ needs run_path(..., run_name='__main__')"
    return f"{said}: what it makes has to lie there"


def main(home: str) -> None:
    """Serve requests until the engine closes the channel."""
    channel = Channel.inherited()
    host = StepHost(Path(home), channel)
    threading.Thread(target=warm, daemon=True).start()
    while (asked := channel.receive(Asked)) is not None:
        threading.Thread(target=host.serve, args=(asked,), daemon=True).start()
    os._exit(0)  # the keeper ends what is still running


if __name__ == "__main__":
    main(sys.argv[1])
