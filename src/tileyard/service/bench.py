"""The resources of a verb in the engine process. Light to import: authors and compilers start before the rest of a run is loaded."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.clock import Clock
from tileyard.base.errors import blame_host
from tileyard.base.model import Device, Side
from tileyard.base.settings import Settings
from tileyard.engine.author_lanes import AuthorLanes, Lanes
from tileyard.engine.authors import Author, Authors, WorkerAuthor
from tileyard.engine.compilers import CompilePool, choose_cores
from tileyard.engine.remembered import RememberedAuthor
from tileyard.service.conversation import Client, ClientAuthor
from tileyard.service.verbs import KernelVerb, ResultT, Verb
from tileyard.targets.registry import BUILT_IN, make_target

if TYPE_CHECKING:
    from tileyard.store.base import Store

HERE = Side()
"""The side of most runs: the Python that runs the engine."""


class Bench:
    """The resources of a verb in the engine process. Resources opened here are closed when the run is over.

    ``compilers`` are those of ``begin``, None without it.
    """

    def __init__(self, settings: Settings, conversation: Client) -> None:
        self.settings = settings
        self.clock = Clock()
        self.objects = ObjectStore(settings.home / "objects")
        self.started_s = self.clock.monotonic_s()
        self.conversation = conversation
        self.compilers: CompilePool | None = None
        self._store: Store | None = None
        self._run = ""
        self._stack = AsyncExitStack()

    @property
    def store(self) -> "Store":
        """The trials of the data directory; both are made if they do not exist yet."""
        if self._store is None:
            from tileyard.store.trials import open_store

            self._store = self._stack.enter_context(open_store(self.settings.make_home()))
        return self._store

    @property
    def run(self) -> str:
        """The name of the run."""
        if not self._run:
            from tileyard.service.naming import claim_run_name

            self._run = claim_run_name(self.settings.home, self.store)
        return self._run

    @property
    def elapsed_s(self) -> float:
        """Seconds since the verb was opened."""
        return self.clock.monotonic_s() - self.started_s

    def make_authors(
        self,
        *,
        devices: Sequence[Device] = (),
        sides: Sequence[Side] = (HERE,),
        recall: bool = True,
    ) -> Authors:
        """The authors of these sides, kept off the cores that devices own if there are others.

        With ``recall`` known answers are used again.
        """
        cores = self.settings.cores
        owned = {core for device in devices for core in device.cores}
        free = tuple(core for core in cores if core not in owned) or cores
        lanes = Lanes(self.settings.lanes)
        make = partial(self._make_author, free, lanes, recall=recall)
        authors = Authors(sides, free, make, lanes)
        self._stack.push_async_callback(authors.close)
        return authors

    async def begin(
        self, start: KernelVerb[Any], authors: Authors, devices: Sequence[Device] = ()
    ) -> None:
        """Start the author of the file, and the compile worker that describes the target, without waiting for their imports."""
        await authors.begin("", start.file)
        cores = choose_cores(self.settings, devices, start.compile_workers)
        self.compilers = CompilePool(self.settings, authors.sides, cores, start.group_size)
        self._stack.push_async_callback(self.compilers.close)
        await self.compilers.begin(("", start.target))

    def _make_author(
        self, cores: tuple[int, ...], lanes: Lanes, side: Side, file: str, *, recall: bool
    ) -> Author:
        if not file:
            return ClientAuthor(self.conversation, cores)
        side = msgspec.structs.replace(side, python_limit_s=self.settings.python_limit_s)
        make = partial(WorkerAuthor, Path(file), self.settings.home, cores, side)
        author = AuthorLanes(make, (side.name, file), lanes)
        if side.python or side.variables:
            return author
        return RememberedAuthor(author, Path(file), self.objects, recall=recall)

    async def check_tools(self, target: str) -> None:
        """Refuse what cannot be built here while the author's process is still importing its modules."""
        if target.partition(":")[0] in BUILT_IN:
            await asyncio.to_thread(make_target(target, {}).fingerprint)

    async def close(self) -> None:
        """Close everything that was opened."""
        await self._stack.aclose()


async def carry_out(verb: Verb[ResultT], bench: Bench, stopping: asyncio.Event) -> ResultT:
    """Open a verb, carry out its plan, and return its result: see ``runs.drive``.

    Raises TileyardError if the request is invalid.
    """
    if verb.golden_threads:
        bench.settings = msgspec.structs.replace(bench.settings, golden_threads=verb.golden_threads)
    if verb.python_limit_s:
        bench.settings = msgspec.structs.replace(bench.settings, python_limit_s=verb.python_limit_s)
    try:
        plan = await verb.settle(bench.settings).open(bench)
        from tileyard.service.runs import drive

        return await drive(plan, bench, stopping)
    except OSError as error:
        raise (blame_host(error, bench.settings.home) or error) from error
    finally:
        await bench.close()
