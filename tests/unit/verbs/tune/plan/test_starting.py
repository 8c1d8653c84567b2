"""What a study tries early: configs of the user's, and what won for near arguments or on other silicon."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.unit.verbs.tune.plan.test_space import GEMM, PlainAuthor

from tileyard.base.errors import UsageError
from tileyard.base.model import Device, Measurement, Outcome, Value
from tileyard.store.choices import Choice, add_choices, measure_distance
from tileyard.store.trials import TrialStore
from tileyard.testing.stores import make_trial
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import OpenSpace, open_space
from tileyard.verbs.tune.plan.starting import MOST_NEAR, begin_with_known, recall_in
from tileyard.verbs.tune.plan.strategies.bayes import Bayes
from tileyard.workers.protocol import Space

BLOCKS = (16, 32, 64, 128)
HERE = Device(name="cpu:0", kind="cpu", identity="EPYC, AVX2")
WON = Choice(
    kernel="gemm",
    arguments={"M": 512, "N": 512},
    target="cpu",
    silicon=HERE.identity,
    config={"bm": 64, "bn": 16},
    tensors=(),
    latency_ns=10.0,
)


def begin(home: Path, *, reuse: bool = True, limit: int = 10**9, **request: object) -> OpenSpace:
    """The space of a kernel for M=N=1024, with what a study begins with; ``where`` limits bm times bn."""
    author = PlainAuthor(
        replace(GEMM, defaults={"bm": 16, "bn": 16}),
        space=Space(axes={"bm": BLOCKS, "bn": BLOCKS}, asks_where=True),
        limit=limit,
    )
    usual = {"keeps_default": True, "strategy": "grid", "trials": 12}
    asked = TuneRequest(**(usual | request))  # type: ignore[arg-type]  # fields of the request
    space = asyncio.run(open_space(author, asked))
    start = SimpleNamespace(request=asked, target="cpu", reuse=reuse)
    with TrialStore.open(home) as store:
        bench = cast(Any, SimpleNamespace(settings=SimpleNamespace(home=home), store=store))
        asyncio.run(
            begin_with_known(cast(Any, start), bench, [HERE], space, recall=recall_in(bench))
        )
    return space


def won(bm: int, bn: int = 16, **fields: object) -> Choice:
    """A choice of this config."""
    return replace(WON, config={"bm": bm, "bn": bn}, **fields)


def pairs(configs: Sequence[Mapping[str, Value]]) -> list[tuple[Value, Value]]:
    """The blocks of configs."""
    return [(config["bm"], config["bn"]) for config in configs]


@pytest.mark.parametrize("strategy", ["grid", "random", "bayes"])
def test_the_users_configs_come_after_the_incumbents(tmp_path: Path, strategy: str) -> None:
    """Whatever the strategy, each once, with the kernel's defaults where they have no value."""
    seeds = ({"bm": 128, "bn": 64}, {"bn": 32}, {"bm": 16, "bn": 16}, {"bm": 128, "bn": 64})
    space = begin(tmp_path, strategy=strategy, seed_config=seeds)
    asyncio.run(space.draw(12))
    assert pairs(space.configs)[:3] == [(16, 16), (128, 64), (16, 32)]
    assert len({*pairs(space.configs)}) == len(space.configs) == 12
    assert [name for name, _ in space.incumbents] == ["default"]
    assert space.describe_start() == ""


@pytest.mark.parametrize(
    ("seed", "says"),
    [
        ({"bm": 48}, r"not in the space: bm=48 bn=16 \(bm has no such value\)"),
        ({"bm": 128, "bn": 128}, "--seed-config is no valid config"),
        ({"bk": 8}, r"--seed-config bk is no parameter of the space \(there are: bm, bn\)"),
    ],
)
def test_a_config_that_cannot_be_tried_is_refused(
    tmp_path: Path, seed: dict[str, Value], says: str
) -> None:
    """One that is not in the space, one that ``where`` rejects, and one of an unknown parameter."""
    with pytest.raises(UsageError, match=says):
        begin(tmp_path, limit=64 * 128, seed_config=({"bm": 32}, seed))


def test_each_of_the_users_configs_has_room(tmp_path: Path) -> None:
    """One that would not be tried is refused."""
    seeds = ({"bm": 32}, {"bm": 64})
    with pytest.raises(UsageError, match="--trials 2 leaves no room for each --seed-config"):
        begin(tmp_path, trials=2, seed_config=seeds)


def test_what_was_tried_early_is_under_way_no_more(tmp_path: Path) -> None:
    """A strategy that proposes it later hears again how it ended."""
    space = begin(tmp_path, strategy="bayes", seed_config=({"bm": 32},), limit=64 * 64)
    for config in space.configs[:2]:
        space.tell(make_trial(1, config=config))
    asyncio.run(space.draw(12))
    asyncio.run(space.settle())
    assert isinstance(space.strategy, Bayes)
    early = {space.points.find(config) for config in space.configs[:2]}
    assert early <= space.strategy._proposed
    assert not early & space.strategy._under_way.keys()


def test_what_won_nearby_is_tried_first(tmp_path: Path) -> None:
    """The nearest first; other silicon is as far as two doublings; only points of the space, each once."""
    choices = (
        won(128, arguments={"M": 4096, "N": 4096}),  # 4 doublings
        won(64),  # 2
        won(16, 32, silicon="Xeon, AVX512", arguments={"M": 1024, "N": 1024}),  # 2, and elsewhere
        won(32, 32, arguments={"M": 1024, "N": 512}),  # 1
        won(48, arguments={"M": 1024, "N": 513}),  # not in the space
        won(64, arguments={"M": 64, "N": 64}),  # the same again
        won(128, 128, arguments={"M": 1024, "N": 900}),  # where rejects it
        won(64, 64, target="cuda", arguments={"M": 1024, "N": 1000}),  # another kind
        won(64, 32, arguments={"M": 1024, "N": 1024, "dtype": "float16"}),  # not comparable
        won(16, 64, file="other.py", arguments={"M": 1024, "N": 1000}),  # a kernel of that name
        won(32, 16, arguments={"M": 1024, "N": 1024}),  # in use
    )
    add_choices(tmp_path, choices)
    space = begin(tmp_path, limit=64 * 128)
    expected = [(16, 16), (32, 16), (32, 32), (64, 16), (16, 32), (128, 16)]
    assert pairs(space.configs)[:6] == expected
    assert pairs(space.seeds) == expected[2:]
    assert space.describe_start() == (
        "4 configs that won elsewhere are tried first: N=512, M=512 N=512, on Xeon, M=4096 N=4096"
    )


def test_another_device_is_named(tmp_path: Path) -> None:
    """By its model; also where only its driver is another one."""
    same = {"M": 1024, "N": 1024}
    add_choices(tmp_path, [won(64, silicon="EPYC, AVX", arguments=same)])
    assert begin(tmp_path).describe_start() == "1 config that won elsewhere is tried first: on EPYC"


def test_what_is_asked_afresh_knows_no_other_study(tmp_path: Path) -> None:
    """With --fresh, and for one config that is only run."""
    add_choices(tmp_path, [WON])
    assert begin(tmp_path).seeds
    assert not begin(tmp_path, reuse=False).seeds
    assert not begin(tmp_path, keeps_default=False).seeds


def test_studies_that_ended_without_a_winner_count_too(tmp_path: Path) -> None:
    """With their fastest trial; a winner is preferred to it. A few of many are tried."""
    timed = Measurement(median_ns=9.0, low_ns=9.0, high_ns=9.0, confidence=0.95, samples_ns=(9.0,))
    usual = {
        "kernel": "gemm",
        "arguments": {"M": 512, "N": 1024},
        "silicon": HERE.identity,
        "measurement": timed,
    }
    fields: tuple[dict[str, Any], ...] = (
        {"config": {"bm": 32, "bn": 16}, "measurement": replace(timed, median_ns=12.0)},
        {"config": {"bm": 32, "bn": 32}},
        {"config": {"bm": 32, "bn": 64}, "outcome": Outcome.MISMATCH, "measurement": None},
        {"config": {"bm": 16, "bn": 64}, "arguments": WON.arguments},
    )
    add_choices(tmp_path, [WON])
    with TrialStore.open(tmp_path) as store:
        store.record_all([make_trial(f"t{n}", **(usual | one)) for n, one in enumerate(fields)])
    assert pairs(begin(tmp_path).seeds) == [(32, 32), (64, 16)]
    sizes = (600, 700, 800, 900, 1000, 1100)
    many = [won(32, 16 << n % 4, arguments={"M": m, "N": 512}) for n, m in enumerate(sizes)]
    many += [won(64, 16 << n % 4, arguments={"M": m, "N": 510}) for n, m in enumerate(sizes)]
    add_choices(tmp_path, many)
    assert len(begin(tmp_path, trials=200).seeds) == MOST_NEAR


def test_distances_are_doublings() -> None:
    """Of numbers; other values, and names, must be equal."""
    base: dict[str, Value] = {"M": 64, "N": 64, "t": True, "d": "f16", "z": 0}
    for changed, expected in (
        ({"M": 128}, 1.0),
        ({"M": 16, "N": 256}, 4.0),
        ({"M": 64.0}, 0.0),
        ({"z": 3}, 3.0),
        ({"t": False}, float("inf")),
        ({"d": "f32"}, float("inf")),
        ({"e": 1}, float("inf")),
    ):
        assert measure_distance(base, {**base, **changed}) == expected
