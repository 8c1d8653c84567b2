"""How a run begins, and what it says when it ends."""

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.events import Event, RunStarted
from tileyard.base.model import Side
from tileyard.base.settings import Settings
from tileyard.engine.authors import Author, Authors
from tileyard.engine.driver import Driver
from tileyard.engine.hosts.building import HostedPool
from tileyard.engine.hosts.meeting import NamedHosts
from tileyard.engine.hosts.slots import RemoteDevices
from tileyard.engine.yard import Yard
from tileyard.service.bench import Bench
from tileyard.service.conversation import Client
from tileyard.service.runs import Plan, _describe_unchecked, _tell_start
from tileyard.service.verbs import KernelVerb
from tileyard.show.view import NO_RUN, RunView


class Silent(RemoteDevices):
    """Hosts that do not build."""

    async def open_builders(self, *_: object, **__: object) -> HostedPool:
        """See ``RemoteDevices``."""
        raise UsageError("no answer")


class Beginning:
    """An author that notes that it was started."""

    def __init__(self, started: list[str], file: str) -> None:
        self._started, self._file = started, file

    async def begin(self) -> None:
        """Note it."""
        self._started.append(self._file)


@pytest.mark.parametrize(
    ("is_there", "message"), [(False, "names no hosts"), (True, "no answer")], ids=["new", "known"]
)
def test_the_author_starts_before_its_hosts_have_answered(
    tmp_path: Path, *, is_there: bool, message: str
) -> None:
    """Whether the verb has started agents for their devices, as tune does, or needs them only to build."""
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    bench, started = Bench(settings, cast(Client, None)), list[str]()
    if is_there:
        bench.hosts = Silent(NamedHosts(()), settings)
    authors = Authors([Side()], (0,), lambda _, file: cast(Author, Beginning(started, file)))
    verb = KernelVerb[None](file="add.py", target="cpu", reuse=True, hosts="nowhere")
    with pytest.raises(UsageError, match=message):
        asyncio.run(verb.begin(bench, authors))
    assert started == ["add.py"]


def test_configs_that_were_not_checked_have_a_reason() -> None:
    """The first one."""
    assert _describe_unchecked(["k: it asks for time", "k: x"]) == (
        "2 configs not checked for races and undefined accesses: k: it asks for time "
        "(--check-sync allows ten minutes)"
    )


def test_a_host_that_is_lost_before_the_run_begins_is_one_of_its_events(tmp_path: Path) -> None:
    """Once, after the first event, which resets what reports know; so is one that is lost later."""
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    bench, early, told = Bench(settings, cast(Client, None)), list[Event](), list[Event]()
    bench.hosts = RemoteDevices(NamedHosts(()), settings)
    bench.hosts.emit = early.append
    bench.hosts._note_lost("a", "gone")
    plan = cast(Plan[None], SimpleNamespace(begun=NO_RUN, budget_s=None, notes=()))
    yard = cast(Yard, SimpleNamespace(grounds={}, devices=(), emit=told.append))
    with contextlib.closing(bench.store):
        _tell_start(plan, bench, yard, cast(Driver, SimpleNamespace(window=1)))
    bench.hosts._note_lost("b", "gone")
    view = RunView()
    for event in told:
        view.take(event, 0.0)
    assert isinstance(told[0], RunStarted)
    assert (early, told[1:], [*view.lost]) == ([], bench.hosts.lost, ["a", "b"])
