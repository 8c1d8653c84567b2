"""Other hosts are asked in the background, each by one task, and seldom."""

import asyncio
from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings
from tileyard.engine.hosts.meeting import Place
from tileyard.verbs.serve.plan.hosts import AskedHosts, HostState, Pace, find_places


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A data directory."""
    return Settings(home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,))


def make_place(tmp_path: Path, command: str) -> Place:
    """A host whose agent is a shell, which notes its start."""
    return Place("far", ("sh", "-c", f"echo $$ >> {tmp_path}/started; {command}"))


async def answered(hosts: AskedHosts) -> HostState:
    """The state of the only host once it has answered."""
    while (state := hosts.look()[0]).answer is None:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.005)
    return state


def test_a_silent_host_is_asked_once_and_delays_nobody(tmp_path: Path, settings: Settings) -> None:
    """All who look get what is known at once; in the end that it did not answer in time."""

    async def use() -> HostState:
        hosts = AskedHosts([make_place(tmp_path, "read _")], settings, Pace(limit_s=0.2))
        looks = [hosts.look()[0] for _ in range(100)]
        assert looks == [HostState(host="far")] * 100
        try:
            return await answered(hosts)
        finally:
            for _ in range(10):
                await asyncio.sleep(0.01)
                hosts.look()
            await hosts.close()

    state = asyncio.run(use())
    assert state.answer is not None
    assert state.answer.problem == "host far: no answer within 0.2 s"
    assert len((tmp_path / "started").read_text().split()) == 1


def test_a_host_is_asked_again_after_the_period(tmp_path: Path, settings: Settings) -> None:
    """The latest reason is shown, with the last line of what reaches the host."""
    place = make_place(tmp_path, "echo no route >&2; exit 255")

    def noted() -> str:
        started = tmp_path / "started"
        return started.read_text() if started.exists() else ""

    async def use() -> None:
        hosts = AskedHosts([place], settings, Pace(period_s=0.0))
        while len(noted().split()) < 3:
            await asyncio.sleep(0.005)
            hosts.look()
        answer = (await answered(hosts)).answer
        assert answer is not None
        assert "no agent began there: no route (see" in answer.problem
        await hosts.close()
        asked = noted()
        hosts.look()
        await hosts.close()
        assert noted() == asked

    asyncio.run(use())


@pytest.mark.slow
def test_nothing_is_left_of_a_host_that_does_not_hang_up(
    tmp_path: Path, settings: Settings
) -> None:
    """Also if the end comes while its session already ends."""

    async def use() -> None:
        hosts = AskedHosts([make_place(tmp_path, "exec sleep 60")], settings, Pace(limit_s=0.2))
        await answered(hosts)
        await hosts.close()

    asyncio.run(use())
    assert not Path("/proc", (tmp_path / "started").read_text().strip()).exists()


@pytest.mark.parametrize("hosts", ["slurm:", "listen:127.0.0.1:0,1"])
def test_hosts_that_cannot_be_asked_at_any_time_are_refused(hosts: str) -> None:
    """Those of a queue would cost a place in it each time."""
    with pytest.raises(UsageError, match="cannot be asked at any time"):
        find_places(hosts)
    assert find_places("") == ()
