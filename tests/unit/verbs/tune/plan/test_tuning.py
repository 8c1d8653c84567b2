"""Which bundles can be tuned, and the space that one is opened as."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.unit.verbs.tune.plan.test_study import StillClock

from tileyard.base.errors import BundleError, TileyardError, UsageError
from tileyard.base.model import (
    BuildKey,
    Case,
    CommandWork,
    Device,
    Digest,
    GoldenKey,
    KernelWork,
    Step,
    Tolerance,
    Trial,
)
from tileyard.base.settings import Settings
from tileyard.service.bench import Bench
from tileyard.verbs.test.plan.packed import PackedSuite
from tileyard.verbs.test.result.result import Suite, SuiteCase
from tileyard.verbs.tune.options import TuneRequest, start_tune
from tileyard.verbs.tune.plan.study import Study
from tileyard.verbs.tune.plan.tuning import PackedSpace, open_packed, plan_study
from tileyard.workers.protocol import Golden, RunEntry

DETAILS = msgspec.json.encode(PackedSpace(file="k.py", flops=5.0, run_s=3.0)).decode()


def make_packed(*works: Any) -> PackedSuite:  # noqa: ANN401 - of kernels and of programs
    """A bundle of these works, all built for the CPU."""
    cases = [SuiteCase(testcase="k", name=str(n), work=work) for n, work in enumerate(works)]
    golden = Golden(key=GoldenKey("g"), inputs=(), outputs=())
    entries = {
        one.id: RunEntry(
            case=one.id, build=BuildKey(one.id), golden=golden, specs=(), scalars=(), log=""
        )
        for one in cases
    }
    suite = Suite(name="k", path="k.py", folder="", cases=tuple(cases))
    targets = dict.fromkeys(entries, "cpu")
    return PackedSuite(suite=suite, entries=entries, targets=targets, files=Digest(""))


def make_work(block: object, size: int = 8) -> KernelWork:
    """A config of a kernel."""
    tolerance = Tolerance(rtol=0.5, atol=0.0)
    return KernelWork(
        kernel="k", arguments={"M": size}, config={"block": block}, tolerance=tolerance
    )


def test_a_budget_begins_with_the_run(tmp_path: Path) -> None:
    """Whatever it takes until the study is planned, such as reading what is known, is part of it."""
    packed = open_packed(make_packed(*map(make_work, (1, 2))), "", TuneRequest(), "s.tyb")
    clock = StillClock()
    client = cast(Any, SimpleNamespace(tell_event=lambda _: None))
    bench = Bench(Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,)), client)
    bench.clock, bench.started_s = cast(Any, clock), 0.0

    def recall(*_: str) -> list[Trial]:
        clock.now_s += 30.0
        return []

    start = start_tune("k.py", "k", {"budget": "100s"})
    device = Device(name="cpu:0", kind="cpu", identity="x", cores=(0,))
    authors = cast(Any, SimpleNamespace(cores=()))
    plan = asyncio.run(plan_study(start, bench, [device], authors, packed.space, recall))
    assert isinstance(plan.source, Study)
    assert clock.now_s > 0
    assert plan.source.budgets.left_s == 100.0 - clock.now_s


def test_a_bundle_is_a_space() -> None:
    """With all that its author says, if packed; each config finds its own binary, in the finals, too."""
    packed = make_packed(*map(make_work, (1, 1.0, 2)))
    opened = open_packed(packed, DETAILS, TuneRequest(), "s.tyb")
    space = opened.space
    asyncio.run(space.draw(1))
    assert (space.kernel, space.arguments, space.size, space.at_most) == ("k", {"M": 8}, 3, 3)
    assert (space.file, space.flops, space.run_s, opened.target) == ("k.py", 5.0, 3.0, "cpu")
    assert space.tolerance == Tolerance(rtol=0.5, atol=0.0)
    for number, config in enumerate(space.configs):
        found = opened.find(None, Case(id="f01", work=KernelWork(config=config)))
        assert (found.case, found.build) == ("f01", f"k/{number}")
    older = open_packed(packed, "", TuneRequest(), "s.tyb").space
    asyncio.run(older.draw(1))
    assert (older.configs, older.flops) == (space.configs, 0.0)


def test_of_a_larger_space_some_are_tried() -> None:
    """The same ones each time, as many as are wanted."""
    packed = make_packed(*map(make_work, range(20)))
    request = TuneRequest(trials=4, strategy="random")
    spaces = [open_packed(packed, "", request, "s.tyb").space for _ in range(2)]
    for space in spaces:
        asyncio.run(space.draw(1))
    assert spaces[0].configs == spaces[1].configs
    assert (len(spaces[0].configs), spaces[0].size, spaces[0].at_most) == (4, 20, 4)


@pytest.mark.parametrize(
    ("works", "details", "error", "says"),
    [
        ((), "", UsageError, "s.tyb does not hold the configs of one kernel"),
        ((make_work(1), make_work(1, size=9)), "", UsageError, "does not hold .* one shape"),
        ((CommandWork(run=Step(argv=("true",))),), "", UsageError, "does not hold"),
        ((make_work(1),), '{"flops": "many"}', BundleError, "s.tyb holds no space: .*flops"),
    ],
)
def test_what_is_no_space_is_refused(
    works: tuple[Any, ...], details: str, error: type[TileyardError], says: str
) -> None:
    """Nothing, several shapes, programs, and what says nonsense of its kernel."""
    with pytest.raises(error, match=says):
        open_packed(make_packed(*works), details, TuneRequest(), "s.tyb")


def test_targets_and_entries_must_be_there() -> None:
    """Of every case, and for one target."""
    packed = make_packed(make_work(1), make_work(2))
    mixed = msgspec.structs.replace(packed, targets={"k/0": "cpu", "k/1": "cuda:sm_80"})
    with pytest.raises(UsageError, match="one shape and target"):
        open_packed(mixed, "", TuneRequest(), "s.tyb")
    torn = msgspec.structs.replace(packed, entries={"k/0": packed.entries["k/0"]})
    with pytest.raises(BundleError, match="holds no space"):
        open_packed(torn, "", TuneRequest(), "s.tyb")
