"""The addresses of a server and what each answers; everything is only read."""

import asyncio
import contextlib
import functools
import gc
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Final, Generic, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tileyard.base.errors import HomeError, TileyardError, UsageError
from tileyard.base.settings import Settings
from tileyard.devices.survey import survey_devices
from tileyard.engine.hosts.listening import bind
from tileyard.engine.hosts.meeting import Address, Place
from tileyard.pages.page import read_policy
from tileyard.pages.report import render_report
from tileyard.store.base import Store, TrialQuery
from tileyard.store.events import is_run_name, list_run_files
from tileyard.store.results import read_result, stamp_result
from tileyard.store.trials import has_store, open_store
from tileyard.verbs.records.command.report import WITH_OTHERS, describe_run
from tileyard.verbs.serve.plan.access import Access, Guard
from tileyard.verbs.serve.plan.connections import LIMITS, Limits, serving
from tileyard.verbs.serve.plan.hosts import WINDOW_S, AskedHosts
from tileyard.verbs.serve.plan.live import Hub, Make, Subscription
from tileyard.verbs.serve.plan.runs import (
    NO_STREAM,
    Folds,
    RunLine,
    find_line,
    find_open,
    list_lines,
)
from tileyard.verbs.serve.view import (
    LINKS,
    EndedRun,
    Overview,
    Shown,
    encode_state,
    show_devices,
    show_ended,
    show_list,
    show_message,
    show_overview,
    show_page,
    show_run,
)

MOST_SHOWN: Final = 8
"""Runs under way that are shown on the first page."""
RECENT: Final = 20
LISTED: Final = 100
TRIALS: Final = 200
"""Trials on the page of a run."""
PERIOD_S: Final = 1.0
"""Seconds between states of a page."""
SURVEY_S: Final = 2.0
"""Seconds for which a survey of devices counts."""
CHUNK_BYTES: Final = 64 << 10
MOST_MADE: Final = 4
"""Pages that are made at the same time."""
MOST_REPORTS: Final = 16
"""Reports that are kept."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class Page(Response):
    """A page, sent piece by piece as it is read, with its policy."""

    media_type = "text/html"

    def __init__(self, page: str, status: int = 200) -> None:
        super().__init__(page, status, {"content-security-policy": read_policy(page)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": [*self.raw_headers],  # which are completed for this reader
            }
        )
        for first in range(0, len(self.body), CHUNK_BYTES):
            piece = self.body[first : first + CHUNK_BYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Events(StreamingResponse):
    """The states of a page as they change, for one subscriber."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription.events(), media_type="text/event-stream")
        self._subscription = subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them until the subscriber hangs up."""
        with self._subscription:
            await super().__call__(scope, receive, send)


class Shared(Generic[T]):
    """What counts for some seconds, for all that ask for it: it is found once."""

    def __init__(self, find: Callable[[], Awaitable[T]], fresh_s: float) -> None:
        self._find = find
        self._fresh_s = fresh_s
        self._found: tuple[T, float] | None = None
        self._finding = asyncio.Lock()

    async def get(self) -> T:
        """What was found last, if that still counts."""
        async with self._finding:
            if self._found is None or monotonic() - self._found[1] > self._fresh_s:
                self._found = await self._find(), monotonic()
            return self._found[0]


class Site:
    """The pages of one data directory, and of the devices of this host and of those at ``places``."""

    def __init__(self, settings: Settings, places: Sequence[Place] = ()) -> None:
        self._settings = settings
        self._home = settings.home
        self._folds = Folds(settings.home)
        self._store: Store | None = None
        self._opening = threading.Lock()
        self._overview = Shared(self._find_overview, PERIOD_S / 2)
        self._devices = Shared(self._find_devices, SURVEY_S)
        self._hosts = AskedHosts(places, settings)
        self._making = asyncio.Semaphore(MOST_MADE)
        self._reporting = asyncio.Semaphore(
            1
        )  # they take seconds, and the next one may be the same
        self.hub = Hub()

    def make_app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/", self._show_overview),
            Route("/events", self._follow_overview),
            Route("/runs", self._show_list),
            Route("/runs/{run}", self._show_run),
            Route("/runs/{run}/events", self._follow_run),
            Route("/runs/{run}/trials", self._show_trials),
            Route("/devices", self._show_devices),
            Route("/devices/events", self._follow_devices),
        ]
        errors = {HTTPException: _say_status, TileyardError: _say_error, Exception: _say_bug}
        app = Starlette(routes=routes, exception_handlers=errors)
        app.router.redirect_slashes = False
        return app

    async def close(self) -> None:
        """Close the store, and end the agents."""
        await self._hosts.close()
        if self._store is not None:
            self._store.close()

    # ---- pages ------------------------------------------------------------------------------

    async def _show_overview(self, _: Request) -> Response:
        return await _page("Runs under way", await self._overview.get(), "/events")

    async def _show_list(self, request: Request) -> Response:
        before = request.query_params.get("before", "")
        if before and not is_run_name(before):
            raise HTTPException(404)

        def find() -> Shown:
            files = list_run_files(self._home)
            return show_list(list_lines(self._home, files, self._open(), LISTED, before), LISTED)

        return await _page("Runs", await self._make(request, find, self._making))

    async def _show_run(self, request: Request) -> Response:
        """The progress of a run under way, the report of one that has ended, or else its trials."""
        run = _run_of(request)
        line = await asyncio.to_thread(find_line, self._home, run)
        if line.stream.is_open:
            async with self._folds.hold(run) as fold:
                state = await fold.look(show_run)
            return await _page(state.title, state, f"/runs/{run}/events")
        kept = stamp_result(self._home, run)
        if kept:
            make = functools.partial(self._find_report, run, kept)
            if report := await self._make(request, make, self._reporting):
                return report
        return await self._show_trials(request)

    async def _show_trials(self, request: Request) -> Response:
        run = _run_of(request)
        state = await self._make(request, lambda: self._find_ended(run), self._making)
        return await _page(state.title or run, state)

    async def _show_devices(self, _: Request) -> Response:
        return await _page("Devices", await self._devices.get(), "/devices/events")

    async def _make(self, request: Request, make: Callable[[], T], places: asyncio.Semaphore) -> T:
        """What ``make`` returns, in one of these places, if its reader has not hung up meanwhile."""
        async with places:
            if await request.is_disconnected():
                raise HTTPException(400, "the connection has ended")
            return await asyncio.to_thread(make)

    # ---- their changes ----------------------------------------------------------------------

    async def _follow_overview(self, request: Request) -> Response:
        return self._follow(request, lambda: _repeat(self._overview.get))

    async def _follow_run(self, request: Request) -> Response:
        run = _run_of(request)
        line = await asyncio.to_thread(find_line, self._home, run)
        if line.stream == NO_STREAM:
            raise HTTPException(404)
        return self._follow(request, lambda: self._watch_run(run))

    async def _follow_devices(self, request: Request) -> Response:
        return self._follow(request, lambda: _repeat(self._devices.get))

    def _follow(self, request: Request, make: Make) -> Response:
        if "text/event-stream" not in request.headers.get("accept", ""):
            raise HTTPException(406, "this is for an EventSource")
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self.hub.is_full:
            raise HTTPException(503, "too many pages are followed now", {"retry-after": "10"})
        return Events(Subscription(self.hub, request.url.path, make))

    async def _watch_run(self, run: str) -> AsyncIterator[bytes]:
        """The states of a run until it has ended, or its process is gone."""
        async with self._folds.hold(run) as fold:
            while True:
                line = await asyncio.to_thread(find_line, self._home, run)
                state = await fold.look(show_run)
                is_over = state.is_over or not line.stream.is_open
                state = msgspec.structs.replace(state, is_over=is_over)
                yield await asyncio.to_thread(encode_state, state)
                if is_over:
                    return
                await asyncio.sleep(PERIOD_S)

    # ---- states -----------------------------------------------------------------------------

    async def _find_overview(self) -> Overview:
        files = await asyncio.to_thread(list_run_files, self._home)
        states = []
        for line in (await asyncio.to_thread(find_open, files))[:MOST_SHOWN]:
            async with self._folds.hold(line.run) as fold:
                with contextlib.suppress(HomeError):  # it was removed meanwhile
                    states.append(await fold.look(show_run))
        recent = await asyncio.to_thread(self._list_recent, files)
        return show_overview(states, recent)

    def _list_recent(self, files: Sequence[Path]) -> list[RunLine]:
        return list_lines(self._home, files, self._open(), RECENT)

    async def _find_devices(self) -> Shown:
        hosts = self._hosts.look()
        survey = await asyncio.to_thread(survey_devices, self._settings, WINDOW_S)
        return show_devices(survey, hosts)

    def _find_ended(self, run: str) -> EndedRun:
        """A run by its trials. Raises HTTPException if there is none."""
        line, store = find_line(self._home, run), self._open()
        outcomes = store.count_outcomes(run) if store is not None else {}
        if line.stream.begun is None and not outcomes:
            raise HTTPException(404)
        query = TrialQuery(run=run, limit=TRIALS)
        return show_ended(line, outcomes, store.list_trials(query) if store is not None else ())

    def _find_report(self, run: str, kept: int) -> Page | None:
        """The report of a run whose result was kept at this time; None if there are none of such results."""
        others = 0
        with contextlib.suppress(TileyardError):  # a page can do without others
            store = self._open() if _has_others(self._home, run, kept) else None
            others = store.get_last_number() if store is not None else 0
        return _make_report(self._home, run, kept, others)

    def _open(self) -> Store | None:
        """The store, None if there is none yet."""
        with self._opening:
            if self._store is None and has_store(self._home):
                self._store = open_store(self._home)
            return self._store


@functools.lru_cache(maxsize=MOST_REPORTS)
def _make_report(home: Path, run: str, _kept: int, _others: int) -> Page | None:
    """The same for all its readers, as long as its result and those of ``others`` are the same."""
    gc.disable()  # objects by the hundred thousand, none of them garbage: visits are a quarter of the time
    try:
        subjects = describe_run(home, run)
    except UsageError:
        return None
    finally:
        gc.enable()
    return Page(render_report(subjects, (*LINKS, (f"/runs/{run}/trials", "Trials"))))


@functools.lru_cache(maxsize=LISTED)
def _has_others(home: Path, run: str, _kept: int) -> bool:
    return read_result(home, run).kind in WITH_OTHERS


async def _repeat(find: Callable[[], Awaitable[Shown]]) -> AsyncIterator[bytes]:
    while True:
        yield await asyncio.to_thread(encode_state, await find())
        await asyncio.sleep(PERIOD_S)


async def _page(title: str, state: Shown, events: str = "", status: int = 200) -> Page:
    return Page(await asyncio.to_thread(show_page, title, state, events), status)


def _run_of(request: Request) -> str:
    """The run that an address names. Raises HTTPException if no run can have that name."""
    run = str(request.path_params["run"])
    if not is_run_name(run):
        raise HTTPException(404)
    return run


async def _say_status(_: Request, error: Exception) -> Response:
    status, headers = 404, None
    if isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers
    text = (
        "There is no such page" if status == HTTPStatus.NOT_FOUND else getattr(error, "detail", "")
    )
    page = await _page(HTTPStatus(status).phrase, show_message(text), status=status)
    page.headers.update(headers or {})
    return page


async def _say_error(_: Request, error: Exception) -> Response:
    return await _page("These pages cannot be shown", show_message(str(error)), status=503)


async def _say_bug(_: Request, error: Exception) -> Response:
    log.error("a page could not be made", exc_info=error)
    text = "This is a bug in tileyard; please report it"
    return await _page("This page cannot be shown", show_message(text), status=500)


@contextlib.asynccontextmanager
async def open_site(  # noqa: PLR0913 - each option is a parameter
    settings: Settings,
    address: Address,
    *,
    names: Iterable[str] = (),
    token: bytes = b"",
    limits: Limits = LIMITS,
    places: Sequence[Place] = (),
) -> AsyncIterator[Address]:
    """Answer browsers at an address within the block, which gets it with its port. The agents at ``places``,
    which list devices there, end with it. Raises UsageError, and ToolMissingError where the kernel does not
    report who connects and there is no token.
    """
    access = Access(address, names, token)
    site = Site(settings, places)
    with bind(address) as listening:
        try:
            async with serving(Guard(site.make_app(), access), listening, limits):
                yield Address(host=address.host, port=listening.getsockname()[1])
        finally:
            await site.close()
