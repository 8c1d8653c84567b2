"""The run's end of a session with an agent: orders, each with its answers, and the objects it lacks."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.folders import Listing, TreeFile, encode_listing
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import (
    HostAbsentError,
    TileyardError,
    ToolMissingError,
    UsageError,
    WireError,
)
from tileyard.base.model import BuildKey, Digest
from tileyard.base.modes import make_folder, open_file
from tileyard.engine.hosts.meeting import ANY_CODE, Place
from tileyard.engine.hosts.messages import (
    BEAT_S,
    GRACE_S,
    PROTOCOL,
    SILENCE_S,
    Answer,
    Answered,
    BatchEnded,
    Beat,
    BuildersOffered,
    BuildThere,
    CancelOrder,
    DeviceHeld,
    DeviceLost,
    DevicesFound,
    Greeting,
    HostDiagnosed,
    HostSurveyed,
    HostTime,
    ObjectPart,
    ObjectsWanted,
    OfferObjects,
    OfferTree,
    OpenToolchain,
    Order,
    OrderDone,
    Ordered,
    OrderRefused,
    PythonIdentified,
    RunOnDevice,
    SendObjects,
)
from tileyard.engine.hosts.parts import Arrivals, read_parts
from tileyard.processes.async_wire import AsyncChannel, HostChannel, StreamChannel
from tileyard.processes.supervise import time_limit
from tileyard.workers.protocol import TargetInfo

AnswerT = TypeVar("AnswerT")
END_LOOK_S = 0.05
LAST_BYTES = 4096
RETRY_S, MOST_RETRY_S = 2.0, 60.0
"""Seconds before a lost host is tried again: the first and the longest wait."""
RETURN_S = 60.0
"""Seconds for which a lease waits for a lost host to come back."""
END_LIMIT_S = 30.0
"""Seconds in which an agent ends what it runs, before it is killed; its keepers end the rest."""
SILENT_END_LIMIT_S = 2.0
"""Likewise for a command that has not said a word in this session: no agent runs anything there."""
LAST = (
    *(OrderDone, OrderRefused, DevicesFound, DeviceHeld, DeviceLost, BatchEnded, ObjectsWanted),
    *(BuildersOffered, TargetInfo, HostSurveyed, HostTime, HostDiagnosed, PythonIdentified),
)
"""The answers that end an order."""


@dataclass(frozen=True, kw_only=True)
class SentTree:
    """A tree for a host, or the part of one that it needs: its files are in ``folder``."""

    digest: Digest
    listing: Listing
    folder: Path


Prepare = Callable[["HostSession"], Awaitable[None]]
"""Orders what must be known of a host before it is used; raises TileyardError."""


class SessionLostError(Exception):
    """The agent is gone, or silent: nothing more is heard of what it was ordered to do."""


class HostSession:
    """An agent at a place, from its start to its end. ``sent`` and ``fetched`` count the objects that it and
    the run lacked.
    """

    def __init__(self, place: Place, objects: ObjectStore, log: Path) -> None:
        self.name = place.name
        self.sent = self.fetched = 0
        self.tell_lost: Callable[[str], None] = lambda why: None
        self.place = place
        self._objects = objects
        self._log = log
        self._known: set[Digest] = set()
        self._built: set[BuildKey] = set()
        self._sending = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Queue[Answer | None]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: HostChannel | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._lost = ""
        self._is_lost = asyncio.Event()
        self._scratch = ""
        self._log_start = 0
        self._cancelling: set[asyncio.Task[None]] = set()
        self.number = 0
        """Which session of this host it is: what belongs to an earlier one is over."""
        self._prepare: Prepare | None = None
        self._reviving = asyncio.Lock()
        self._is_over = False
        self._has_begun = self._may_work = False
        self._heard_s = 0.0
        self._preparing: asyncio.Task[Any] | None = None
        self._delay_s = self._again_s = 0.0
        self._returning: asyncio.Task[None] | None = None
        self.boot = ""

    async def open(self) -> None:
        """Start the agent, or wait for it. Raises ToolMissingError, HostAbsentError if its host is not
        reached, and UsageError if it is no agent of this version.
        """
        await self._open()
        self.number = 1

    async def _open(self) -> None:
        greeting: Greeting | None = None
        is_silent = is_other = self._has_begun = self._may_work = False
        try:
            async with time_limit(self.place.limit_s):
                self._channel = await self._connect()
                if self._channel is not None:
                    answered = await self._channel.receive(Answered)
                    if answered is not None and isinstance(answered.answer, Greeting):
                        greeting = answered.answer
        except TimeoutError:
            is_silent = True
        except WireError:  # what answers is no agent
            is_other = True
        if greeting is None:
            code = await self._end()
            may_be_away = self.place.expect is not None or (
                self.place.lost_code is not None and (is_silent or self._is_line_lost(code))
            )
            kind = HostAbsentError if may_be_away and not is_other else UsageError
            raise kind(
                f"host {self.name}: no agent began there{self._last_line()}", f"see {self._log}"
            )
        self._has_begun = True
        own = version("tileyard")
        if (greeting.version, greeting.protocol) != (own, PROTOCOL):
            await self._end()
            raise UsageError(
                f"host {self.name} has Tileyard {greeting.version} (protocol {greeting.protocol}), "
                f"and this run is of {own} (protocol {PROTOCOL})",
                "install the same version on both",
            )
        self.boot = greeting.boot
        self._heard_s = asyncio.get_running_loop().time()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._beat())]

    def begin_with(self, prepare: Prepare) -> None:
        """What each later session of this host begins with."""
        self._prepare = prepare

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be ordered."""
        return bool(self._lost)

    async def revive(self, limit_s: float = RETURN_S) -> None:
        """Start the agent again if its session is lost, at longer and longer intervals until ``limit_s`` have
        passed; one that connects is expected since it was lost. Raises SessionLostError if it does not come,
        or its host is not as it was.
        """
        if self.place.expect is None:
            await self._try_again(limit_s)
            return
        if self._returning is not None:
            await asyncio.wait({self._returning}, timeout=limit_s)
        if self._lost:
            raise SessionLostError(f"host {self.name}: {self._lost}")

    async def _try_again(self, limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + limit_s
        async with self._reviving:
            while self._lost and not self._is_over:
                if self._again_s > due:
                    raise SessionLostError(f"host {self.name}: {self._lost}")
                await asyncio.sleep(self._again_s - loop.time())
                try:
                    await self._begin_again()
                    self._delay_s = 0.0
                    return
                except (TileyardError, SessionLostError, OSError) as error:
                    self._delay_s = min(max(2 * self._delay_s, RETRY_S), MOST_RETRY_S)
                    self._again_s = loop.time() + self._delay_s
                    if self._again_s > due:
                        said = f"{self._lost}, and it does not come back: {error}"
                        raise SessionLostError(f"host {self.name}: {said}") from error

    async def _begin_again(self) -> None:
        """Begin a new session. It stays lost for all but what prepares it, until that is done."""
        await self._end()
        self.forget()
        self._preparing = asyncio.current_task()
        try:
            await self._open()
            if self._prepare is not None:
                await self._prepare(self)
            if self._tasks[0].done():
                raise SessionLostError(f"host {self.name}: {self._lost}")
        finally:
            self._preparing = None
        self.number += 1
        self._lost = ""
        self._is_lost.clear()

    async def follow(self, order: Order) -> AsyncGenerator[Answer, None]:
        """All answers to an order; one that is not read to its end is cancelled. Raises UsageError if it
        is refused, and SessionLostError.
        """
        number = next(self._numbers)
        answers = self._answers[number] = asyncio.Queue()
        is_over = False
        self._may_work |= isinstance(order, RunOnDevice | BuildThere)
        try:
            await self._send(number, order)
            while (answer := await answers.get()) is not None:
                is_over = isinstance(answer, LAST)
                if isinstance(answer, OrderRefused):
                    raise UsageError(f"host {self.name}: {answer.message}", answer.hint)
                yield answer
                if is_over:
                    return
            is_over = True
        finally:
            del self._answers[number]
            if not is_over and not self._lost:
                self._cancel(number)
        raise SessionLostError(f"host {self.name}: {self._lost}")

    async def ask(self, order: Order, kind: type[AnswerT]) -> AnswerT:
        """The single answer to an order. Raises as ``follow``."""
        async with contextlib.aclosing(self.follow(order)) as answers:
            async for answer in answers:
                if isinstance(answer, kind):
                    return answer
                raise AssertionError(f"{type(order).__name__} was answered with {answer}")
        raise AssertionError("an order ended without an answer")

    async def send_objects(self, digests: Iterable[Digest], builds: Iterable[BuildKey]) -> None:
        """Have the host know these objects and artifacts, each sent once. Raises as ``follow``, and
        DamagedError.
        """
        async with self._sending:
            new = tuple(dict.fromkeys(one for one in digests if one and one not in self._known))
            own = {key: self._objects.get_record("build", key) for key in {*builds} - self._built}
            manifests = {str(key): data for key, data in own.items() if data is not None}
            if not new and not manifests:
                return
            order = OfferObjects(digests=new, builds=manifests)
            wanted = await self.ask(order, ObjectsWanted)
            await self._send_each(
                read_parts(self._objects.path(digest), digest) for digest in wanted.digests
            )
            self._known.update(new)
            self._built.update(own)

    async def send_tree(self, tree: SentTree) -> None:
        """Have the host know a tree, whose files are sent once. Raises as ``follow``, and OSError."""
        async with self._sending:
            if tree.digest in self._known:
                return
            order = OfferTree(listing=encode_listing(tree.listing))
            wanted = (await self.ask(order, ObjectsWanted)).digests
            files = {
                one.digest: path
                for path, one in tree.listing.entries.items()
                if isinstance(one, TreeFile)
            }
            await self._send_each(
                read_parts(tree.folder / files[digest], digest, is_of_tree=True)
                for digest in wanted
            )
            if wanted and (await self.ask(order, ObjectsWanted)).digests:
                raise UsageError(f"host {self.name}: files of a tree are gone again")
            self._known.add(tree.digest)

    async def open_toolchain(self, bundle: Path, order: OpenToolchain) -> None:
        """Have the host unpack a toolchain, which is in a bundle here. Raises as ``follow``."""
        if (await self.ask(order, ObjectsWanted)).digests:
            await self._send_each([read_parts(bundle, order.bundle)])
            await self.ask(order, ObjectsWanted)

    async def fetch_objects(self, digests: Sequence[Digest]) -> None:
        """Get what this run lacks of these objects of the host. Raises as ``follow``, and DamagedError."""
        await self.fetch_left(digests, "", self._objects)
        self._known.update(digests)

    async def fetch_left(self, digests: Iterable[Digest], device: str, into: ObjectStore) -> None:
        """Get objects that cases of programs have left on a device. Raises as ``fetch_objects``."""
        wanted = tuple(dict.fromkeys(one for one in digests if not into.has(one)))
        if not wanted:
            return
        order = SendObjects(digests=wanted, device=device)
        with contextlib.closing(Arrivals(into)) as arrivals:
            async with contextlib.aclosing(self.follow(order)) as answers:
                async for answer in answers:
                    if isinstance(answer, ObjectPart) and arrivals.take(answer):
                        self.fetched += 1

    def note_built(self, build: BuildKey) -> None:
        """This artifact was built there: it need not be offered."""
        self._built.add(build)

    def knows(self, digests: Iterable[Digest], build: BuildKey) -> bool:
        """Whether the host has these objects and this artifact, as far as is known here."""
        return build in self._built and all(one in self._known for one in digests if one)

    def forget(self) -> None:
        """Offer everything again before a batch that needs it."""
        self._known.clear()
        self._built.clear()

    async def close(self) -> None:
        """Hang up, upon which the agent ends what it runs and itself; kill it if it takes too long, or what
        still tries to reach its host.
        """
        self._is_over = True
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.wait({self._returning})
        await self._end()

    async def _end(self) -> int:
        """End the session; the exit code of what started the agent, which is killed if it takes too long, 0
        if nothing did.
        """
        code = 0
        self._lose("the run has ended")
        tasks = (*self._tasks, *self._cancelling)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if (process := self._process) is not None:
            try:
                limit_s = END_LIMIT_S if self._has_begun else SILENT_END_LIMIT_S
                await asyncio.to_thread(process.wait, limit_s)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.to_thread(process.wait)
            code, self._process = process.returncode, None
        if self._scratch:
            with contextlib.suppress(OSError):  # the agent has removed it, unless it was killed
                remove_folder(Path(self._scratch))
        return code

    async def _connect(self) -> HostChannel | None:
        """The channel to the agent, which is started, or is to come; None if it does not."""
        make_folder(self._log.parent)
        if self.place.expect is not None:
            with contextlib.suppress(OSError):
                self._log_start = self._log.stat().st_size
            return await (await self.place.expect()).wait()
        try:
            return self._start()
        except OSError as error:
            raise ToolMissingError(
                f"host {self.name}: this host cannot start {self.place.argv[0]!r}, the command that "
                f"reaches it: {error.strerror}"
            ) from error

    def _start(self) -> AsyncChannel:
        argv = self.place.argv
        if self.place.is_here:
            self._scratch = tempfile.mkdtemp(prefix="tileyard-host-")
            argv = (*argv, "--scratch", self._scratch)
        with open(self._log, "ab", opener=open_file) as log:
            self._log_start = log.tell()
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for the run
            )
        if process.stdin is None or process.stdout is None:
            raise AssertionError("a process with pipes has none")
        read_fd, write_fd = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdout.close()
        process.stdin.close()
        self._process = process
        return AsyncChannel(read_fd, write_fd)

    @property
    def _heard(self) -> HostChannel:
        if self._channel is None:
            raise AssertionError(f"host {self.name} was not opened")
        return self._channel

    async def _send(self, number: int, order: Order) -> None:
        if self._lost and asyncio.current_task() is not self._preparing:
            raise SessionLostError(f"host {self.name}: {self._lost}")
        try:
            await self._heard.send(Ordered(number=number, order=order))
        except BrokenPipeError:
            await self._is_lost.wait()
            raise SessionLostError(f"host {self.name}: {self._lost}") from None

    async def _send_each(self, objects: Iterable[Iterable[ObjectPart]]) -> None:
        """Send objects, each in its parts, one after another without a wait for the answers in between."""
        waiting: deque[asyncio.Queue[Answer | None]] = deque()
        numbers: list[int] = []
        try:
            for parts in objects:
                numbers.append(next(self._numbers))
                waiting.append(asyncio.Queue())
                self._answers[numbers[-1]] = waiting[-1]
                for part in parts:
                    await self._send(numbers[-1], part)
                while waiting and not waiting[0].empty():
                    await self._take_answer(waiting.popleft())
            while waiting:
                await self._take_answer(waiting.popleft())
        finally:
            for number in numbers:
                del self._answers[number]

    async def _take_answer(self, answers: asyncio.Queue[Answer | None]) -> None:
        answer = await answers.get()
        if answer is None:
            raise SessionLostError(f"host {self.name}: {self._lost}")
        if isinstance(answer, OrderRefused):
            raise UsageError(f"host {self.name}: {answer.message}", answer.hint)
        self.sent += 1

    def _cancel(self, number: int) -> None:
        async def cancel() -> None:
            with contextlib.suppress(SessionLostError):
                await self._send(0, CancelOrder(number=number))

        task = asyncio.ensure_future(cancel())
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _read(self) -> None:
        """Distribute answers until none comes any more; then no order gets one."""
        why = ""
        try:
            async with time_limit(SILENCE_S + GRACE_S) as limit:
                while (answered := await self._heard.receive(Answered)) is not None:
                    limit.reset(SILENCE_S + GRACE_S)
                    self._heard_s = asyncio.get_running_loop().time()
                    if answered.number in self._answers:
                        self._answers[answered.number].put_nowait(answered.answer)
            await self._confirm_end()
        except TimeoutError:
            why = f"nothing was heard of its agent for {SILENCE_S + GRACE_S:g} s"
        except WireError as error:
            why = str(error)
        is_news = not self._lost
        self._lose(why or f"its agent is gone{self._last_line()}")
        if is_news:
            self.tell_lost(self._lost)
        if is_news and self.place.expect is not None and self._prepare is not None:
            self._returning = asyncio.create_task(self._try_again(inf))

    async def _confirm_end(self) -> None:
        """Wait until an agent of which no more is heard has ended: what started it says so, or it has hung
        up, or heard nothing for long enough: for one that had nothing to run or build, in a moment. One that
        was killed is ended by its keepers.
        """
        loop = asyncio.get_running_loop()
        due_s = self._heard_s + SILENCE_S + GRACE_S
        if not self._may_work:
            due_s = min(due_s, loop.time() + SILENT_END_LIMIT_S)
        while self._process is not None and self._process.poll() is None:
            if loop.time() > due_s:
                return
            await asyncio.sleep(END_LOOK_S)
        code = None if self._process is None else self._process.returncode
        is_cut = isinstance(self._channel, StreamChannel) and self._channel.is_broken
        if is_cut or (code is not None and self._is_line_lost(code)):
            await asyncio.sleep(due_s - loop.time())

    def _is_line_lost(self, code: int) -> bool:
        """Whether what started the agent ended because it did not reach it, or reaches it no more."""
        return code != 0 and self.place.lost_code in (code, ANY_CODE)

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        self._is_lost.set()
        if self._channel is not None:
            self._channel.close()  # wakes those who wait for it
        for answers in self._answers.values():
            answers.put_nowait(None)

    async def _beat(self) -> None:
        """Give signs of life, also while a session that begins again is prepared."""
        with contextlib.suppress(BrokenPipeError):
            while True:
                await self._heard.send(Ordered(number=0, order=Beat()))
                await asyncio.sleep(BEAT_S)

    def _last_line(self) -> str:
        """What the agent, or what should start it, printed last in this session."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(self._log_start, file.seek(0, 2) - LAST_BYTES))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f": {lines[-1]}" if lines else ""
