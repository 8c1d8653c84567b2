"""Pages that ``tileyard serve`` shows: who gets them, and what strangers and other sites' pages can do."""

import asyncio
import base64
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.security.conftest import User
from tests.unit.show.suite_results import one_of_each

from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.base.events import CaseEnded, CasePlanned, CaseStarted, RunStarted
from tileyard.base.model import Case, CommandWork, Device, Outcome, Step, Trial
from tileyard.base.settings import Settings
from tileyard.engine.hosts.listening import bind
from tileyard.engine.hosts.meeting import Address, Place
from tileyard.store.events import EventLog
from tileyard.store.results import keep_result
from tileyard.store.trials import open_store
from tileyard.verbs.serve.command.site import Events, Page, open_site
from tileyard.verbs.serve.plan import access
from tileyard.verbs.serve.plan.access import HEADERS, Access
from tileyard.verbs.serve.plan.connections import (
    BUFFER_BYTES,
    MOST_CONNECTIONS,
    REQUEST_BYTES,
    BoundedServer,
    Connection,
    Limits,
    serving,
)
from tileyard.verbs.serve.plan.live import MOST_SUBSCRIBERS, Hub, Subscription

HERE = Address(host="127.0.0.1")
TOKEN = bytes(range(32))
QUICK = Limits(request_s=0.2, read_s=0.2, check_s=0.02)
PAGES = ("/", "/runs", "/runs/r1", "/devices")
STREAMS = ("/events", "/runs/r1/events", "/devices/events")
PAGE = "x" * 8 * BUFFER_BYTES
HOSTILE = '<img src=x onerror="alert(1)">\u202e\x1b[2J'


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextlib.asynccontextmanager
async def connected(
    at: Address,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server, which ends with the block."""
    reader, writer = await asyncio.open_connection(at.host, at.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ask(
    at: Address, path: str = "/", *lines: str, method: str = "GET", host: str = ""
) -> Answer:
    """What is answered to one request; ``host`` is the server's own name if it is empty."""
    async with connected(at) as (reader, writer):
        head = (f"{method} {path} HTTP/1.1", f"Host: {host or at}", "Connection: close", *lines)
        writer.write("\r\n".join((*head, "", "")).encode())
        return await read_answer(reader)


async def read_answer(reader: asyncio.StreamReader, *, has_end: bool = True) -> Answer:
    """An answer, with its body if that ``has_end``."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    pairs = (line.partition(": ") for line in head[1:] if line)
    headers = {name.lower(): text for name, _, text in pairs}
    return Answer(int(head[0].split()[1]), headers, await reader.read() if has_end else b"")


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what other tasks do."""
    while not is_so():  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.005)


async def is_hung_up(reader: asyncio.StreamReader) -> bool:
    """Whether the other end hangs up, after what it says first."""
    with contextlib.suppress(OSError):
        while await reader.read(1 << 16):
            pass
    return True


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A data directory with a run r1 that nobody writes any more, and a file beside those of runs."""
    home = tmp_path / "home"
    begun = RunStarted(run="r1", at=1.0, title=HOSTILE, target="command")
    trial = Trial(
        id="r1.1",
        run="r1",
        case=f"c/{HOSTILE}",
        batch="",
        testcase="c",
        target=HOSTILE,
        outcome=Outcome.CRASHED,
        device=HOSTILE,
        message=HOSTILE,
        started_at=2.0,
    )
    with EventLog(home, "r1") as log:
        log.append(begun)
        log.append(CaseEnded(trial=trial))
    with open_store(home):  # filled from the stream
        pass
    (home / "secret.jsonl").write_bytes((home / "runs" / "r1.jsonl").read_bytes())
    return Settings(home=home, lock_dir=tmp_path / "locks", cores=(0,))


def served(
    settings: Settings, use: Callable[[Address], Awaitable[None]], **options: object
) -> None:
    """Carry out a test at the address of a server of these settings."""

    async def run() -> None:
        async with open_site(settings, HERE, **options) as at:  # type: ignore[arg-type]
            await use(at)

    asyncio.run(run())


def test_pages_are_for_programs_of_their_user_alone(
    settings: Settings, users: tuple[User, User]
) -> None:
    """The kernel says whose connection it is; another user of the host gets nothing but a refusal."""

    async def use(at: Address) -> None:
        def connect() -> str:
            with socket.socket() as connection:
                connection.connect((at.host, at.port))
                connection.sendall(f"GET / HTTP/1.0\r\nHost: {at}\r\n\r\n".encode())
                with connection.makefile("rb") as answer:
                    return answer.read().decode()

        assert (await ask(at)).status == 200
        refused = await asyncio.to_thread(users[1].call, connect)
        assert refused.startswith("HTTP/1.1 403")
        assert "another user of this host" in refused

    served(settings, use)


def test_a_kernel_that_names_no_owner_takes_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one nothing is served there."""
    monkeypatch.setattr(access, "_SOCK_DIAG", 200)
    with pytest.raises(ToolMissingError, match="does not report who connects, so a token"):
        Access(HERE, (), b"")
    Access(HERE, (), TOKEN)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_where_others_connect_a_token_is_needed(host: str) -> None:
    """Also where a name may lead elsewhere."""
    with pytest.raises(UsageError, match=r"others can connect to .*: a token is needed"):
        Access(Address(host=host), (), b"")
    Access(Address(host=host), (), TOKEN)


@pytest.mark.parametrize("name", ["", "a b", "http://a", "a/", "*", "[::1", "a:b"])
def test_what_is_no_name_is_refused(name: str) -> None:
    """It would match nothing; one with a port counts without it."""
    with pytest.raises(UsageError, match="is no name of a host"):
        Access(HERE, (name,), TOKEN)
    Access(HERE, ("yard.example:80",), TOKEN)


@pytest.mark.parametrize("at", ["2001:DB8:0::1", "2001:db8:0:0:0:0:0:1", "2001:db8::0001"])
def test_an_address_is_known_in_each_of_its_forms(at: str) -> None:
    """Browsers send the shortest one, whatever was given to ``--listen`` or ``--name``."""
    for access_rules in (
        Access(Address(host=at), (), TOKEN),
        Access(HERE, (f"[{at}]:8765",), TOKEN),
    ):
        refusals = [
            access_rules.find_refusal(
                {"type": "http", "headers": [(b"host", host)], "client": None, "server": None}
            )
            for host in (b"[2001:db8::1]:8765", b"[2001:db8::2]:8765")
        ]
        assert [one.status for one in refusals if one is not None] == [401, 421]


def test_a_token_is_asked_of_everyone(settings: Settings) -> None:
    """Of this user's programs too; it is the password of any user, or a bearer's."""

    def basic(password: str) -> str:
        return f"Authorization: Basic {base64.b64encode(f'any:{password}'.encode()).decode()}"

    wrong = (
        "Authorization:",
        "Authorization: Basic",
        "Authorization: Basic ?",
        f"Authorization: Basic {TOKEN.hex()}",
        f"Authorization: Bearer {TOKEN.hex()[:-1]}",
        f"Authorization: Bearer {TOKEN.hex()} {TOKEN.hex()}",
        basic(""),
        basic(TOKEN.hex()[:-1]),
    )

    async def use(at: Address) -> None:
        for path in (*PAGES, *STREAMS, "/none"):
            answer = await ask(at, path)
            assert (answer.status, answer.headers["www-authenticate"]) == (
                401,
                'Basic realm="tileyard"',
            )
        assert {(await ask(at, "/", line)).status for line in wrong} == {401}
        for right in (basic(TOKEN.hex()), f"Authorization: Bearer {TOKEN.hex()}"):
            assert (await ask(at, "/", right)).status == 200

    served(settings, use, token=TOKEN)


def test_a_server_has_its_own_names_alone(settings: Settings) -> None:
    """A name of B's that leads to A's server, as by DNS rebinding, is refused before anything is read."""
    own = ("localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80", "yard.example")
    strange = (
        *("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"),
        *("localhost@evil.example", "evil.example#localhost", "localhost/", "localhost:", "::1"),
        *("127.0.0.2", "[::2]", "2130706433", "localhost:80:80", "localhost, evil.example", "[]"),
    )

    async def use(at: Address) -> None:
        for host in own:
            assert (await ask(at, host=host)).status == 200
        for host in strange:
            for path in ("/", "/events", "/none"):
                answer = await ask(at, path, host=host)
                assert (answer.status, b"not known by that name" in answer.body) == (421, True)
        twice = await ask(at, "/", "Host: evil.example")
        assert twice.status == 400
        async with connected(at) as (reader, writer):
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            assert (await read_answer(reader)).status == 421

    served(settings, use, names=("yard.example:80",))


@pytest.mark.parametrize(
    "lines",
    [
        ("Origin: http://evil.example",),
        ("Origin: null",),
        ("Origin: http://127.0.0.1",),
        ("Origin: http://127.0.0.1:1",),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"),
        ("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors"),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Origin: http://evil.example"),
    ],
)
def test_other_sites_pages_get_nothing(settings: Settings, lines: tuple[str, ...]) -> None:
    """Neither pages nor streams, which would take the places of A's."""

    async def use(at: Address) -> None:
        for path in (*PAGES, *STREAMS):
            answer = await ask(at, path, "Accept: text/event-stream", *lines)
            assert (answer.status, answer.body) == (403, b"another site's page asks for this\n")
        own = (f"Origin: http://{at}", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors")
        assert (await ask(at, "/", *own)).status == 200
        followed = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
        assert (await ask(at, "/", *followed)).status == 200

    served(settings, use)


def test_every_answer_keeps_other_sites_out(settings: Settings) -> None:
    """Pages, streams, errors and refusals: no frames, no guessed types, no referrer, only our own script."""
    with EventLog(settings.home, "kept"):
        pass
    keep_result(settings.home, "kept", one_of_each())

    async def use(at: Address) -> None:
        async with connected(at) as (reader, writer):
            writer.write(
                f"GET /events HTTP/1.1\r\nHost: {at}\r\nAccept: text/event-stream\r\n\r\n".encode()
            )
            answers = [await read_answer(reader, has_end=False)]
        answers += [
            await ask(at, path) for path in (*PAGES, *["/runs/kept"] * 2, "/none", "/events")
        ]
        answers += [await ask(at, host="evil.example"), await ask(at, method="POST")]
        assert [one.status for one in answers] == [200, *(200,) * 6, 404, 406, 421, 405]
        assert answers[5] == answers[6]  # a report, which is made once for its readers
        for _, headers, body in answers:
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert policy.endswith("; frame-ancestors 'none'")
            assert "unsafe" not in policy
            fixed = HEADERS.keys() - {"content-security-policy"}
            assert {name: headers[name] for name in fixed} == {
                name: HEADERS[name] for name in fixed
            }
            assert ("script-src 'sha256-" in policy) == (b"<script>" in body)

    served(settings, use)


def test_nothing_can_be_changed(settings: Settings) -> None:
    """Only GET and HEAD are answered, and what is sent along is not awaited."""

    async def use(at: Address) -> None:
        for path in (*PAGES, *STREAMS):
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
                answer = await ask(at, path, "Content-Length: 1000000000", method=method)
                assert (answer.status, {*answer.headers["allow"].split(", ")}) == (
                    405,
                    {"GET", "HEAD"},
                )
            head = await ask(at, path, "Accept: text/event-stream", method="HEAD")
            assert (head.status, head.body) == (200, b"")

    served(settings, use)


def test_agents_start_once_whatever_is_asked(settings: Settings, tmp_path: Path) -> None:
    """By the command that was named, and not for requests that are refused."""
    noted = tmp_path / "noted"
    place = Place("far", ("sh", "-c", f"echo started >> {noted}; read _"))

    async def use(at: Address) -> None:
        for path in ("/devices", "/devices/events"):
            for line in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site"):
                assert (await ask(at, path, line)).status == 403
            assert (await ask(at, path, host="evil.example")).status == 421
            assert (await ask(at, path, method="POST")).status == 405
        assert b"being asked" not in (await ask(at, "/")).body
        assert not noted.exists()
        for _ in range(20):
            assert b"being asked" in (await ask(at, "/devices?host=near")).body
        await until(noted.exists)

    served(settings, use, places=(place,))
    assert noted.read_text() == "started\n"


def test_addresses_reach_no_file(settings: Settings) -> None:
    """Only names that a run can have lead to something, and to the run of that name."""
    paths = (
        *("/runs/../secret", "/runs/..%2fsecret", "/runs/%2e%2e/secret", "/runs/..%5csecret"),
        *("/runs/%2e%2e%2fsecret", "/runs/..%252fsecret", "/runs/.", "/runs/..", "/runs/r1%00"),
        *("/runs//secret", "/runs/r1/../../secret", "/runs/%2fetc%2fpasswd", "//secret", "/secret"),
        *("/secret.jsonl", "/runs/r1.jsonl", "/runs/.r1", "/runs/" + "r" * 300, "/runs/r1%0a"),
        *("/runs?before=../secret", "/runs?before=%00", "/runs/%ff", "/runs/*", "/..", "/runs/r1/"),
        "http://evil.example/",
    )

    async def use(at: Address) -> None:
        for path in (*paths, *(f"{path}/events" for path in paths)):
            answer = await ask(at, path, "Accept: text/event-stream")
            assert (path, answer.status) == (path, 404)
            assert b"alert" not in answer.body
        assert b"alert" in (await ask(at, "/runs/r1")).body

    served(settings, use)


def test_what_names_and_messages_contain_is_shown_as_text(settings: Settings) -> None:
    """Titles, cases, devices and messages, in pages and in streams."""
    device = Device(name=HOSTILE, kind="slot", identity="x")
    case = Case(id=f"c/{HOSTILE}", work=CommandWork(run=Step(argv=("true",))))

    async def use(at: Address) -> None:
        pages = [await ask(at, path) for path in PAGES]
        with EventLog(settings.home, "r2") as log:
            log.append(
                RunStarted(run="r2", at=1.0, title=HOSTILE, target=HOSTILE, devices=(device,))
            )
            log.append(CasePlanned(case=case))
            log.append(CaseStarted(case=case.key, device=HOSTILE, at=2.0))
            pages += [await ask(at, "/"), await ask(at, "/runs/r2")]
            async with connected(at) as (reader, writer):
                head = f"Host: {at}\r\nAccept: text/event-stream"
                writer.write(f"GET /runs/r2/events HTTP/1.1\r\n{head}\r\n\r\n".encode())
                assert (await read_answer(reader, has_end=False)).status == 200
                pages.append(Answer(200, {}, await reader.readuntil(b"\n\n")))
        assert sum(b"&lt;img src=x" in page.body for page in pages) == 6  # all but that of devices
        for page in pages:
            assert b"<img" not in page.body
            assert not {"\u202e", "\x1b"}.intersection(page.body.decode())

    served(settings, use)


# ---- crowds and slow ones -------------------------------------------------------------------------


@contextlib.contextmanager
def many_files() -> Iterator[None]:
    """As many open files as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.asynccontextmanager
async def serving_hub(hub: Hub, limits: Limits) -> AsyncIterator[Address]:
    """A server of a large page, and of a stream of large states without an end."""

    async def make() -> AsyncIterator[bytes]:
        number = 0
        while True:
            number += 1
            yield b"%d %b" % (number, b"x" * BUFFER_BYTES)
            await asyncio.sleep(0.001)

    async def page(_: Request) -> Response:
        return Page(PAGE)

    async def follow(_: Request) -> Response:
        return Events(Subscription(hub, "/events", make))

    app = Starlette(routes=[Route("/", page), Route("/events", follow)])
    with bind(HERE) as listening:
        async with serving(app, listening, limits):
            yield Address(host=HERE.host, port=listening.getsockname()[1])


async def stop_reading(at: Address, path: str) -> socket.socket:
    """A connection that asks for something, and does not read it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (at.host, at.port))
    with contextlib.suppress(OSError):  # it may have been ended for a later one
        await loop.sock_sendall(connection, f"GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    return connection


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[BoundedServer]:
    """The servers that were started."""
    found = list[BoundedServer]()
    started = BoundedServer.startup

    async def startup(self: BoundedServer, sockets: list[socket.socket] | None = None) -> None:
        found.append(self)
        await started(self, sockets)

    monkeypatch.setattr(BoundedServer, "startup", startup)
    return found


def test_a_thousand_slow_readers_keep_nobody_out(servers: list[BoundedServer]) -> None:
    """Others are answered meanwhile; what is kept for slow ones is bounded in number and size."""

    async def use() -> None:
        async with serving_hub(Hub(), Limits()) as at:
            crowd = [await stop_reading(at, "/") for _ in range(1000)]
            for _ in range(3):
                assert len((await ask(at, "/")).body) == len(PAGE)
            kept = [
                one.transport.get_write_buffer_size() for one in servers[0].server_state.connections
            ]
            assert len(kept) <= MOST_CONNECTIONS
            assert sum(kept) <= MOST_CONNECTIONS * 3 * BUFFER_BYTES
            for connection in crowd:
                connection.close()

    with many_files():
        asyncio.run(use())


def test_a_reader_over_a_slow_line_keeps_its_connection(servers: list[BoundedServer]) -> None:
    """However long a page takes, as long as some of it is read."""
    at_once = Limits(read_s=0.0)

    async def use() -> None:
        async with serving_hub(Hub(), Limits(check_s=1e6)) as at:
            slow = await stop_reading(at, "/")
            await until(lambda: bool(servers[0].server_state.connections))
            (connection,) = servers[0].server_state.connections
            assert isinstance(connection, Connection)
            await until(lambda: connection.awaits == "reader")
            connection.check(at_once)
            before = connection.transport.get_write_buffer_size()
            while connection.transport.get_write_buffer_size() == before:
                assert await asyncio.get_running_loop().sock_recv(slow, 8 << 10)
            connection.check(at_once)
            assert not connection.transport.is_closing()
            connection.check(at_once)
            assert connection.transport.is_closing()
            slow.close()

    asyncio.run(use())


def test_a_subscriber_that_stops_reading_is_dropped() -> None:
    """After a time; it gets no more than its buffers hold, and others get the latest state meanwhile."""
    hub = Hub()

    async def use() -> None:
        async with serving_hub(hub, QUICK) as at:
            slow = await stop_reading(at, "/events")
            async with connected(at) as (reader, writer):
                writer.write(f"GET /events HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
                await read_answer(reader, has_end=False)
                await until(lambda: bool(hub.topics))
                topic = hub.topics["/events"]
                await until(lambda: topic.users == 2)
                while topic.users != 1:
                    assert await reader.read(1 << 20)
            await until(lambda: not hub.topics)
            assert topic.task is not None
            assert topic.task.cancelled() or topic.task.done()
            slow.close()

    asyncio.run(use())


def test_there_are_only_so_many_subscribers(settings: Settings) -> None:
    """One more is asked to come again later; pages are shown meanwhile, and a place that is left is taken."""

    async def use(at: Address) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(MOST_SUBSCRIBERS):
                reader, writer = await stack.enter_async_context(connected(at))
                head = f"Host: {at}\r\nAccept: text/event-stream"
                writer.write(f"GET /events HTTP/1.1\r\n{head}\r\n\r\n".encode())
                assert (await read_answer(reader, has_end=False)).status == 200
            more = await ask(at, "/events", "Accept: text/event-stream")
            assert (more.status, more.headers["retry-after"]) == (503, "10")
            assert (await ask(at, "/")).status == 200
            writer.transport.abort()
            async with connected(at) as (reader, writer):
                status = 503
                while status == 503:
                    writer.write(f"GET /events HTTP/1.1\r\n{head}\r\n\r\n".encode())
                    status = (await read_answer(reader, has_end=False)).status
                assert status == 200

    served(settings, use)


@pytest.mark.parametrize("said", [b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_who_is_slow_to_ask_is_hung_up_on(settings: Settings, said: bytes) -> None:
    """Also in the middle of a request, and if more of it comes now and then."""

    async def use(at: Address) -> None:
        async with connected(at) as (reader, writer):
            writer.write(said)

            async def drip() -> None:
                while said:
                    await asyncio.sleep(0.05)
                    writer.write(b"x")

            dripping = asyncio.create_task(drip())
            assert await is_hung_up(reader)
            dripping.cancel()

    served(settings, use, limits=QUICK)


def test_a_request_above_the_limit_is_refused(settings: Settings) -> None:
    """Its end is not awaited, and nothing of it is kept."""

    async def use(at: Address) -> None:
        for said in (
            b"GET /" + b"x" * (REQUEST_BYTES + 1),
            b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * (REQUEST_BYTES // 6),
        ):
            async with connected(at) as (reader, writer):
                writer.write(said)
                assert (await read_answer(reader)).status == 400

    served(settings, use)


def test_a_crowd_of_strangers_keeps_nobody_out(settings: Settings) -> None:
    """The oldest connection that asks for nothing makes place for one more."""

    async def use(at: Address) -> None:
        crowd = [
            await asyncio.open_connection(at.host, at.port) for _ in range(MOST_CONNECTIONS + 8)
        ]
        assert (await ask(at)).status == 200
        assert all([await is_hung_up(reader) for reader, _ in crowd[:8]])
        for _, writer in crowd:
            writer.transport.abort()

    with many_files():
        served(settings, use)
