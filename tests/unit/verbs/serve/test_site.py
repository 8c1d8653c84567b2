"""What each address answers, by the application itself."""

import asyncio
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from starlette.requests import Request
from tests.unit.show.run_events import ended, planned, started
from tests.unit.show.suite_results import one_of_each
from tests.unit.verbs.regress.plan.recorded_runs import BASE_NS, record_runs
from tests.unit.verbs.regress.view.test_regress import RESULT, timed

from tileyard.base.errors import HomeError
from tileyard.base.events import RunEnded
from tileyard.base.settings import Settings
from tileyard.store.events import EventLog, list_run_files
from tileyard.store.results import keep_result
from tileyard.store.trials import open_store
from tileyard.testing.stores import make_trial
from tileyard.verbs.records.command.report import describe_run
from tileyard.verbs.serve.command import site
from tileyard.verbs.serve.command.site import Site
from tileyard.verbs.serve.plan.hosts import find_places


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """An empty data directory."""
    return Settings(home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,))


def ask(settings: Settings, *paths: str) -> list[tuple[int, str]]:
    """The status and the text of the answers to these requests, one after another."""

    async def use() -> list[tuple[int, str]]:
        made = Site(settings)
        try:
            return [await _ask(made, path) for path in paths]
        finally:
            await made.close()

    return asyncio.run(use())


async def _ask(made: Site, path: str) -> tuple[int, str]:
    address, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": address, "query_string": query.encode()}
    said: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    async def send(message: dict[str, object]) -> None:
        said.append(message)

    await made.make_app()({**scope, "headers": [], "root_path": ""}, receive, send)
    body = b"".join(bytes(one.get("body", b"")) for one in said[1:])  # type: ignore[call-overload]
    return int(str(said[0]["status"])), body.decode()


def write(settings: Settings, run: str, *, is_done: bool = True) -> None:
    """The stream of a run."""
    with EventLog(settings.home, run) as log:
        for event in (started(), planned("a"), ended("a")):
            log.append(event)
        if is_done:
            log.append(RunEnded(run=run, at=9.0, reason="done"))


def test_an_empty_data_directory_has_pages(settings: Settings) -> None:
    """It is not made by looking at it."""
    assert [status for status, _ in ask(settings, "/", "/runs", "/devices", "/runs/r")] == [
        *(200, 200, 200),
        404,
    ]
    assert not settings.home.exists()


def test_an_ended_run_is_shown_as_its_report(settings: Settings) -> None:
    """The same as of the command, with links; its trials are on a page of their own."""
    write(settings, "r")
    with open_store(settings.home):  # filled from the stream
        pass
    keep_result(settings.home, "r", one_of_each())
    [(status, report), (_, trials)] = ask(settings, "/runs/r", "/runs/r/trials")
    assert status == 200
    assert '<a href="/runs/r/trials">Trials</a>' in report
    assert describe_run(settings.home, "r")[0].answer in report
    assert "1 trial: 1 passed" in trials


def test_a_run_without_a_report_is_shown_by_its_trials(settings: Settings) -> None:
    """One that was killed, and one whose kind of result has no reports."""
    with open_store(settings.home) as store:
        for run in ("killed", "other"):
            store.record(make_trial(f"{run}.1", run=run))
            write(settings, run, is_done=run == "other")
    keep_result(settings.home, "other", started())
    answers = ask(settings, "/runs/killed", "/runs/other", "/runs")
    assert [status for status, _ in answers] == [200, 200, 200]
    assert "1 trial: 1 passed" in answers[0][1]
    assert "killed" in answers[0][1]
    assert "1 trial: 1 passed" in answers[1][1]


def test_a_report_is_made_again_only_if_it_says_something_else(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run has one result; what is kept of a removed one is not shown for a later run of that name. What
    others record does not matter to a suite.
    """
    made = list[Path]()

    def describe(home: Path, run: str) -> Sequence[object]:
        made.append(home / run)
        return ()

    monkeypatch.setattr(site, "describe_run", describe)
    monkeypatch.setattr(site, "render_report", lambda subjects, links: f"page {len(made)}")
    write(settings, "r")
    keep_result(settings.home, "r", one_of_each())
    assert ask(settings, "/runs/r") == [(200, "page 1")]
    record_runs(settings.home, [BASE_NS])
    assert ask(settings, "/runs/r") == [(200, "page 1")]
    keep_result(settings.home, "r", one_of_each())
    assert ask(settings, "/runs/r") == [(200, "page 2")]


def test_a_later_page_of_a_comparison_has_later_runs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its histories: it is made again once something was recorded, and not before."""
    monkeypatch.chdir(settings.home.parent)  # no repository
    write(settings, "run0")
    rows = (timed("scale/config-1", "regressed", 1.05, 1.06, 1.07),)
    keep_result(settings.home, "run0", msgspec.structs.replace(RESULT, run="run0", rows=rows))
    pages = []
    for runs in range(2, 5):
        record_runs(settings.home, [BASE_NS], first=runs - 1)
        record_runs(settings.home, [BASE_NS] * (runs == 2))
        pages += [text for _, text in ask(settings, "/runs/run0", "/runs/run0")]
    assert [
        int(found[1]) if (found := re.search(r"(\d) runs\b", page)) else 0 for page in pages
    ] == [*(0, 0, 3, 3, 4, 4)]


def test_all_readers_of_the_first_page_share_one_look(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of runs is listed once for them, and not once for each."""
    looks = list[Path]()

    def look(home: Path) -> list[Path]:
        looks.append(home)
        return list_run_files(home)

    async def use() -> None:
        made = Site(settings)
        await asyncio.gather(*(_ask(made, "/") for _ in range(100)))
        await made.close()

    monkeypatch.setattr(site, "list_run_files", look)
    write(settings, "r")
    asyncio.run(use())
    assert looks == [settings.home]


def test_what_cannot_be_read_is_a_page_that_says_so(settings: Settings) -> None:
    """A damaged store, in the words of the command line."""
    settings.home.mkdir()
    (settings.home / "store.db").write_bytes(b"nonsense" * 1000)
    [(status, text)] = ask(settings, "/runs")
    assert status == 503
    assert "store.db" in text
    with pytest.raises(HomeError):
        open_store(settings.home)


def test_nothing_is_made_for_those_that_have_hung_up(settings: Settings) -> None:
    """A crowd that does not wait for its answers costs little."""
    made = list[int]()

    async def use() -> None:
        async def receive() -> dict[str, object]:
            return {"type": "http.disconnect"}

        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        request = Request(scope, receive)
        of = Site(settings)
        with pytest.raises(site.HTTPException):
            await of._make(request, lambda: made.append(1), of._making)

    asyncio.run(use())
    assert made == []


@pytest.mark.slow
def test_devices_of_other_hosts_are_shown_once_they_answer(settings: Settings) -> None:
    """The first page is shown at once; a real agent's answer is in a later one."""

    async def use() -> str:
        settings.make_home()
        made = Site(settings, find_places("local:1"))
        try:
            _, first = await _ask(made, "/devices")
            assert "being asked" in first
            while "being asked" in (page := (await _ask(made, "/devices"))[1]):  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.1)
            return page
        finally:
            await made.close()

    page = asyncio.run(use())
    assert "<h2>local-1</h2>" in page
    assert 'aria-label="Devices of local-1"' in page
    assert f"Python {platform.python_version()}" in page
    assert page.count('<th scope="row">cpu:0</th>') == 2
