"""A verb's resources in the engine process. Light to import: authors start before the rest loads."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.clock import Clock
from tileyard.base.model import Device, Side
from tileyard.base.settings import Settings
from tileyard.engine.authors import Author, AuthorLanes, Authors, Lanes, WorkerAuthor
from tileyard.engine.compilers import Builder, Builders
from tileyard.engine.proofs import RememberedAuthor
from tileyard.service.conversation import Client, ClientAuthor
from tileyard.store.base import Store, TrialQuery
from tileyard.store.events import begin_run_file
from tileyard.targets.registry import BUILT_IN, make_target

if TYPE_CHECKING:
    from tileyard.engine.hosts.slots import RemoteDevices

HERE = Side()
"""The side of most runs: the Python that runs the engine."""


def claim_run_name(home: Path, store: Store) -> str:
    """Claim a unique name among all runs of ``home`` by creating its event stream; names sort by
    time. It is year, month and day, hour and minute, four random digits. Raises HomeError.
    """
    while True:
        name = f"{time.strftime('%Y%m%d-%H%M')}-{secrets.token_hex(2)}"
        # A garbage collection may have removed the stream of a run that has trials.
        if begin_run_file(home, name) and not store.list_trials(TrialQuery(run=name, limit=1)):
            return name


class Bench:
    """A verb's resources in the engine process, until the run ends; ``compilers``: after ``begin``.
    Once it is ``stopping`` nothing new is started.
    """

    def __init__(self, settings: Settings, conversation: Client) -> None:
        self.settings = settings
        self.stopping = asyncio.Event()
        self.clock = Clock()
        self.objects = ObjectStore(settings.home / "objects")
        self.started_s = self.clock.monotonic_s()
        self.conversation = conversation
        self.compilers: Builders | None = None
        self.hosts: RemoteDevices | None = None
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
        """These sides' authors, off devices' cores if others exist; ``recall``: use known answers again."""
        cores = self.settings.cores
        owned = {core for device in devices for core in device.cores}
        free = tuple(core for core in cores if core not in owned) or cores
        lanes = Lanes(self.settings.lanes)
        make = partial(self._make_author, free, lanes, recall=recall)
        authors = Authors(sides, free, make, lanes)
        self._stack.push_async_callback(authors.close)
        return authors

    async def begin(self, target: str, compilers: Builders) -> None:
        """Start the compile worker that describes the target, without waiting."""
        self.compilers = compilers
        self._stack.push_async_callback(compilers.close)
        await compilers.begin(Builder("", target))

    def close_later(self, close: Callable[[], Awaitable[object]]) -> None:
        """Have this called when the run ends."""
        self._stack.push_async_callback(close)

    def use_hosts(self, hosts: "RemoteDevices") -> None:
        """Have the run use devices of other hosts, whose agents end with it."""
        self.hosts = hosts
        self._stack.push_async_callback(hosts.close)

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
