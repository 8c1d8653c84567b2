"""A run of a suite within the engine: what an interrupted one leaves."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tileyard.base.errors import UsageError
from tileyard.base.events import CaseEnded, Event, HostJoined
from tileyard.base.model import Device, KernelWork
from tileyard.base.settings import Settings
from tileyard.service.bench import Bench
from tileyard.service.opened import carry_out
from tileyard.targets.command.given import VARIABLE
from tileyard.verbs.test.options import start_test
from tileyard.verbs.test.plan import suites
from tileyard.verbs.test.plan.plan import make_plan
from tileyard.verbs.test.result.achieved import Achieved, Span
from tileyard.verbs.test.result.result import Expected, SuiteResult

pytestmark = pytest.mark.slow

SUITE = """
name = "many"
[[testcase]]
name = "a"
run = { argv = ["true"] }
case = [{ name = "1" }, { name = "2" }]
[[testcase]]
name = "b"
run = { argv = ["true"] }
case = [{ name = "1" }, { name = "2" }]
"""


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run tells the processes that it starts is forgotten after it."""
    monkeypatch.setenv(VARIABLE, "")


class Listening:
    """The client's side of a run; asks for its end when the first case has ended, if it is to."""

    def __init__(self, *, stops: bool) -> None:
        self.stopping = asyncio.Event()
        self._stops = stops

    def tell_event(self, event: Event) -> None:
        """Something happened."""
        if self._stops and isinstance(event, CaseEnded):
            self.stopping.set()


def pack(folder: Path, *, stops: bool) -> SuiteResult:
    """Pack the suite into ``out.tyb``."""
    (folder / "suite.toml").write_text(SUITE)
    start = replace(start_test(str(folder / "suite.toml"), {}), pack_to=str(folder / "out.tyb"))
    settings = Settings(home=folder / "home", lock_dir=folder / "locks", cores=(0,))

    async def run() -> SuiteResult:
        listening = Listening(stops=stops)
        bench = Bench(settings, cast(Any, listening))
        bench.stopping = listening.stopping
        return await carry_out(start, bench)

    return asyncio.run(run())


@pytest.mark.parametrize("stops", [False, True])
def test_a_bundle_is_written_only_if_nobody_interrupted(stops: bool, tmp_path: Path) -> None:
    """A part of a suite would pass for the whole; what was there before stays as it was."""
    before = b"an older bundle"
    (tmp_path / "out.tyb").write_bytes(before)
    result = pack(tmp_path, stops=stops)
    assert result.exit_status == (130 if stops else 0)
    assert ((tmp_path / "out.tyb").read_bytes() == before) is stops


def test_the_plans_of_all_parts_are_told(tmp_path: Path) -> None:
    """In the order in which they ran; a suite of programs alone has one."""
    result = pack(tmp_path, stops=False)
    assert [len(plan.pieces) for plan in result.plans] == [2]


def test_a_bundle_runs_on_cpus_of_one_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels were built for one; what is built for the run may have several."""
    found = tuple(
        Device(name=f"cpu:0@{name}", kind="cpu", identity=f"One, x86-64-v{level}, 8 logical cores")
        for name, level in (("a", 3), ("b", 4))
    )

    async def use(*_: object) -> tuple[Device, ...]:
        return found

    monkeypatch.setattr(suites, "use_hosts", use)
    (tmp_path / "suite.toml").touch()
    start = replace(start_test(str(tmp_path / "suite.toml"), {}), hosts="ssh:a,b")
    case = SimpleNamespace(id="k/1", work=KernelWork(kernel="k"))
    suite = cast(Any, SimpleNamespace(cases=(case,)))
    packed = cast(Any, SimpleNamespace(suite=suite, targets={"k/1": "cpu"}))
    bench = cast(Any, SimpleNamespace(hosts=None))
    assert asyncio.run(suites._find_hosted(start, bench, suite, None)) == ("cpu", found)
    with pytest.raises(UsageError, match=r"^CPUs of several kinds: cpu:0@a is One, x86-64-v3, "):
        asyncio.run(suites._find_hosted(start, bench, suite, packed))


def test_a_device_that_joins_late_is_a_slot_and_tells_nothing_of_launches() -> None:
    """One that comes once all has run is none."""
    opened = cast(Any, object.__new__(suites._OpenSuite))
    opened._achieved = Achieved()
    ran = {"a": ("cpu:0", 10.0, 12.0), "b": ("cpu:1", 10.25, 14.0), "d": ("cpu:0", 12.5, 13.0)}
    for case, (device, begin, end) in {**ran, "c": ("cpu:0@late", 11.5, 14.0)}.items():
        opened._achieved.spans.append(Span(case=case, device=device, begin=begin, end=end))
    for host, at in (("late", 11.0), ("after", 15.0)):
        joined = Device(name=f"cpu:0@{host}", kind="cpu", identity="x")
        opened._achieved(HostJoined(host=host, at=at, devices=(joined,)))
    cases = [SimpleNamespace(id=name, work=SimpleNamespace(devices=1)) for name in "abcd"]
    own = tuple(Device(name=f"cpu:{number}", kind="cpu", identity="x") for number in range(2))
    opened._devices, opened._target_of = {"cpu": own}, lambda _: "cpu"
    opened._outlook = SimpleNamespace(selection=SimpleNamespace(cases=cases))
    opened._costs = SimpleNamespace(shares_cores=False)
    expected = [Expected(case=case.id, testcase=case.id, seconds=1.0) for case in cases]
    opened._parts = [SimpleNamespace(cases=cases, plan=make_plan(expected, 2), target="cpu")]
    (found,), started = opened._measure(SimpleNamespace(began_at=9.0))
    assert (found.slots, started.startup_s, started.launch_s) == (3, 0.5, 0.25)
    assert "2.0 s before the last of 3 slots had joined" in found.reason
