"""The work of configs reaches a strategy while others are tried, and from what was built before."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.doubling import write_doubling
from tests.unit.look.test_looking import PRODUCT

from tileyard.artifacts.manifest import Manifest, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError
from tileyard.base.model import BuildKey, Measurement, Outcome
from tileyard.targets.own_sources import Reported, Resources
from tileyard.targets.registry import PROGRAM_FILE
from tileyard.testing.stores import make_trial
from tileyard.verbs.tune.plan.foresight import Count, Foresight, count_built, list_subjects
from tileyard.verbs.tune.plan.space import OpenSpace
from tileyard.verbs.tune.plan.strategies.base import (
    OF_BINARIES,
    Config,
    Points,
    StrategyThread,
    Work,
)
from tileyard.verbs.tune.plan.strategies.model import Model
from tileyard.workers.author import Author
from tileyard.workers.protocol import CountWork, Failed, WorkCounted

BLOCKS = Points({"block": (16, 32, 64, 128)})


async def watch(model: Model, count: Count) -> list[str]:
    """Why it ended, if it did, once it has asked for every point, or in vain."""
    said: list[str] = []
    is_over = asyncio.Event()
    left = BLOCKS.size

    def end(why: str) -> None:
        said.append(why)
        is_over.set()

    async def note(config: Config) -> Work | Failed:
        nonlocal left
        work, left = await count(config), left - 1
        if not left:
            is_over.set()
        return work

    thread = StrategyThread()
    foresight = Foresight(model, thread, note, asyncio.Lock(), end)
    foresight.wake()
    await is_over.wait()
    await asyncio.sleep(0)  # it takes in what it has got
    await thread.ask(lambda: None)
    await foresight.close()
    await foresight.close()
    return said


def test_an_author_counts_the_work_of_every_config(tmp_path: Path) -> None:
    """Of one that it cannot elaborate there is none, which ends nothing."""
    write_doubling(tmp_path, {"all": 128})
    author = Author.of_file(tmp_path / "double.py", ObjectStore(tmp_path / "objects"))

    async def count(config: Config) -> Work | Failed:
        shape = {"N": 128} if config["block"] != 64 else {}
        reply = author.answer(CountWork(kernel="double", arguments=shape, config=config))
        assert isinstance(reply, WorkCounted)
        return reply.work

    model = Model(BLOCKS, trials=4, seed=0)
    model.begin_with(1, ())
    assert asyncio.run(watch(model, count)) == []
    assert {BLOCKS.config_at(number)["block"] for number in model._rows} == {16, 32, 128}
    work = asyncio.run(count({"block": 32}))
    assert isinstance(work, dict)
    assert {name: work[name] for name in ("blocks", "operations", "read_bytes")} == {
        "blocks": 4,
        "operations": 128,
        "read_bytes": 512,
    }


@pytest.mark.parametrize(
    ("end", "known"),
    [
        (Failed(message="killed", outcome=Outcome.INFRA_ERROR, is_final=True), 1),
        (Failed(message="killed", outcome=Outcome.CRASHED), 3),
        (DamagedError("killed"), 1),
    ],
)
def test_what_fails_too_often_ends_the_counting(end: Failed | DamagedError, known: int) -> None:
    """With one message; the search goes on without."""
    model = Model(BLOCKS, trials=4, seed=0)
    asked: list[Config] = []

    async def count(config: Config) -> Work | Failed:
        asked.append(config)
        if isinstance(end, DamagedError):
            raise end
        return end

    assert asyncio.run(watch(model, count)) == ["killed"]
    assert len(asked) == known
    assert not model._rows


@pytest.mark.parametrize("method", ["tell", "list_unforeseen"])
def test_an_error_of_a_strategy_ends_the_study(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it raised, although only the counting heard of it; not once that is closed."""
    model = Model(BLOCKS, trials=4, seed=0)

    def fail(_: object) -> None:
        raise ArithmeticError("no model fits")

    async def count(_: Config) -> Work:
        return {}

    async def search() -> None:
        space = OpenSpace(kernel="k", arguments={}, size=4, flops=0.0, wanted=4, points=BLOCKS)
        space.strategy = model
        space.foresight = Foresight(model, space.thread, count, asyncio.Lock(), print)
        await space.draw(1)
        monkeypatch.setattr(model, method, fail)
        space.tell(make_trial("t", config=space.configs[0]))
        await asyncio.wait({space.foresight._task})
        with pytest.raises(ArithmeticError, match="no model fits"):
            await space.draw(2)
        monkeypatch.undo()
        space.foresight = Foresight(model, space.thread, count, asyncio.Lock(), print)
        await space.foresight.close()
        await space.draw(3)
        assert len(space.configs) == 3

    asyncio.run(search())


def test_an_artifact_says_what_its_binary_is_like(tmp_path: Path) -> None:
    """Of several device functions the largest spills and the least occupancy; of a CPU's neither."""
    objects = ObjectStore(tmp_path)
    one = Resources(
        symbol="a",
        registers=32,
        spilled_bytes=8,
        stack_bytes=0,
        shared_bytes=0,
        code_bytes=9,
        parameter_bytes=0,
        occupancy=0.25,
    )
    two = replace(one, symbol="b", spilled_bytes=0, occupancy=0.75)
    found = []
    for number, resources in enumerate(((one, two), (two, one), ())):
        build = BuildKey(f"{number:02x}" * 20)
        manifest = Manifest(
            kernel="product",
            target="cuda:sm_90a",
            fingerprint="",
            build=build,
            binary="",
            files={PROGRAM_FILE: objects.put_bytes(PRODUCT.strip().encode())},
            details=msgspec.json.encode(Reported(resources=resources)).decode(),
        )
        publish(manifest, objects)
        found.append(count_built(build, {}, objects))
    assert [[work.get(name) for name in OF_BINARIES] for work in found] == [
        *([8, 0.25], [8, 0.25], [None, None]),
    ]
    assert {work["blocks"] for work in found} == {4}


def test_what_is_not_kept_teaches_nothing(tmp_path: Path) -> None:
    """Trials whose binary was removed are left out."""
    measured = Measurement(
        median_ns=9.0, low_ns=9.0, high_ns=9.0, confidence=0.95, samples_ns=(9.0,)
    )
    trial = make_trial("t", outcome=Outcome.PASSED, measurement=measured)
    trial = replace(trial, keys=replace(trial.keys, build=BuildKey("gone")))
    assert list_subjects([trial], ObjectStore(tmp_path), {}) == []
