"""Studies with a bound on a fact of binaries, and those that look for a Pareto set."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.unit.verbs.tune.plan.test_study import Bench

from tileyard.artifacts.manifest import Manifest, publish
from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.errors import UsageError
from tileyard.base.events import StudyAdvanced
from tileyard.base.model import BuildKey, Keys, Outcome, Trial, Value
from tileyard.testing.stores import make_trial
from tileyard.verbs.tune.plan.goals import (
    Goals,
    cache_facts,
    check_facts,
    find_facts,
    list_undominated,
)
from tileyard.verbs.tune.result import StudyResult

CASES = 100


def goals_of(
    amounts: Mapping[int, float], second: str = "", bounds: Mapping[str, float] | None = None
) -> Goals:
    """Goals with these bytes by tile; a tile without any is not known."""

    def find(trial: Trial) -> Mapping[str, float]:
        tile = int(trial.config["tile"])
        return {"bytes": amounts[tile]} if tile in amounts else {}

    return Goals(bounds=bounds or {}, second=second, find=find)


def tiles_of(result: StudyResult) -> list[int]:
    """The members of the Pareto set."""
    return [int(one.config["tile"]) for one in result.pareto]


def test_a_config_beyond_a_bound_cannot_win() -> None:
    """It counts as too large, with the number; the case of each has the bounds, so that it need not run."""
    amounts = {1: 100.0, 2: 90.0, 3: 50.0, 4: 50.0}
    bench = Bench(
        {1: 10.0, 2: 20.0, 3: 30.0, 4: -1.0}, goals=goals_of(amounts, bounds={"bytes": 89})
    )
    told: list[StudyAdvanced] = []
    bench.study.watch = told.append
    result = bench.drive()
    assert told[-1].rejected == {"--bound bytes": 2}
    assert result.best is not None
    assert result.best.config == {"tile": 3}
    found = {int(one.config["tile"]): one for one in result.trials}
    assert [found[tile].exceeds for tile in (1, 2, 3, 4)] == ["--bound bytes"] * 2 + [""] * 2
    assert found[1].message == "bytes is 100, and its bound 89"
    assert found[4].outcome is Outcome.MISMATCH
    screenings = [batch for batch in bench.asked if batch.alike]
    assert all(batch.cases[0].bounds == {"bytes": 89} for batch in screenings)


def test_a_bound_that_excludes_everything_leaves_no_winner() -> None:
    """Also the default, which says why."""
    default: tuple[tuple[str, dict[str, Value]], ...] = (("default", {"tile": 1}),)
    goals = goals_of({1: 7.0, 2: 8.0}, bounds={"bytes": 6})
    result = Bench({1: 10.0, 2: 20.0}, incumbents=default, goals=goals).drive()
    assert (result.best, result.exit_status) == (None, 1)
    assert result.incumbents[0].problem == "bytes is 7, and its bound 6"


def test_what_is_not_known_cannot_win() -> None:
    """As of a recorded trial whose binary is no longer kept."""
    result = Bench({1: 10.0, 2: 20.0}, goals=goals_of({2: 1.0}, bounds={"bytes": 6})).drive()
    assert result.best is not None
    assert result.best.config == {"tile": 2}
    (lost,) = [one for one in result.trials if one.config == {"tile": 1}]
    assert lost.message == "bytes of its binary is not known: --fresh builds it again"
    assert lost.exceeds == ""


def test_a_strategy_learns_of_a_bound_as_of_a_failure() -> None:
    """Also where the engine did not run it."""
    goals = goals_of({1: 7.0}, bounds={"bytes": 6})
    for outcome in (Outcome.PASSED, Outcome.NOT_RUN):
        judged = goals.judge(make_trial("r.1", config={"tile": 1}, outcome=outcome))
        assert (judged.outcome, judged.measurement) == (Outcome.COMPILE_ERROR, None)
    other = make_trial("r.2", config={"tile": 2}, outcome=Outcome.NOT_RUN)
    assert goals.judge(other) is other


@pytest.mark.slow
def test_the_pareto_set_is_that_of_brute_force() -> None:
    """Of random times and amounts, with ties in both and failures: a member for each trade-off."""
    for number in range(CASES):
        draw = random.Random(number)
        count = draw.randint(1, 30)
        times = {tile: 100.0 * 1.06 ** draw.randint(0, 8) for tile in range(count)}
        amounts = {tile: float(draw.randint(0, 8)) for tile in range(count)}
        times |= {tile: -1.0 for tile in times if draw.random() < 0.2}
        result = Bench(times, goals=goals_of(amounts, "bytes")).drive()
        right = [(took, amounts[tile]) for tile, took in times.items() if took > 0]
        expected = {
            one
            for one in right
            if not any(o[0] <= one[0] and o[1] <= one[1] and o != one for o in right)
        }
        assert [(times[tile], amounts[tile]) for tile in tiles_of(result)] == sorted(expected)
        for member in result.pareto:
            tile = int(member.config["tile"])
            assert member.measurement.low_ns <= times[tile] <= member.measurement.high_ns
            assert member.amount == amounts[tile]
        if expected:
            assert result.best is not None
            assert result.best.id == result.pareto[0].trial
        assert result.second == ("bytes" if expected else "")


def test_a_tie_goes_to_the_smaller_one_and_then_to_the_default() -> None:
    """More of the second measure has to make a config clearly faster."""
    default: tuple[tuple[str, dict[str, Value]], ...] = (("default", {"tile": 3}),)
    times = {1: 100.0, 2: 100.0, 3: 100.2, 4: 99.9, 5: 50.0}
    amounts = {1: 8.0, 2: 4.0, 3: 4.0, 4: 9.0, 5: 20.0}
    result = Bench(times, incumbents=default, goals=goals_of(amounts, "bytes")).drive()
    assert tiles_of(result) == [5, 3]


def test_the_default_is_among_the_finalists() -> None:
    """Even if others are better in both; and at most as many members of a large front as asked for, its ends
    among them.
    """
    default: tuple[tuple[str, dict[str, Value]], ...] = (("default", {"tile": 99}),)
    times = {tile: 100.0 * 1.1**tile for tile in range(20)} | {99: 1000.0}
    amounts = {tile: 100.0 - tile for tile in range(20)} | {99: 200.0}
    bench = Bench(times, incumbents=default, goals=goals_of(amounts, "bytes"), finalists=6)
    result = bench.drive()
    assert bench.final is not None
    assert {case.config["tile"] for case in bench.final.cases} == {0, 4, 8, 11, 15, 19, 99}
    assert tiles_of(result) == [0, 4, 8, 11, 15, 19]
    assert result.incumbents[0].final is not None


def test_no_config_is_abandoned_for_its_time() -> None:
    """The slow may be members: their times are measured like the others'."""
    bench = Bench({1: 10.0, 2: 500.0}, goals=goals_of({1: 9.0, 2: 1.0}, "bytes"))
    bench.drive()
    cases = [case for batch in bench.asked if batch.alike for case in batch.cases]
    assert [(one.abandon_above_ns, one.timing and one.timing.group) for one in cases] == [
        (0.0, ""),
        (0.0, ""),
    ]


def test_a_wrong_finalist_is_no_member() -> None:
    """What is wrong beside the others is not replaced by its screening."""
    bench = Bench({1: 10.0, 2: 20.0, 3: 30.0}, goals=goals_of({1: 9.0, 2: 5.0, 3: 1.0}, "bytes"))
    bench.wrong_in = {("finals", 2)}
    assert tiles_of(bench.drive()) == [1, 3]


def test_a_name_that_no_binary_has_is_one_line() -> None:
    """With the names that there are; a plug-in's are not known ahead."""
    with pytest.raises(
        UsageError, match=r"--bound bytes: a binary for cpu:x86-64-v3 has no such"
    ) as raised:
        goals_of({}, bounds={"bytes": 6}).require_known("cpu:x86-64-v3")
    assert raised.value.hint == "there are: scratch_bytes, workspace_bytes"
    with pytest.raises(UsageError, match="--pareto registers: a binary for cpu has no such number"):
        Goals(second="registers").require_known("cpu")
    Goals(second="registers").require_known("cuda:sm_90a")
    Goals(second="joules").require_known("plugin")
    with pytest.raises(UsageError, match="file has no such number"):
        check_facts({"a": "--pareto"}, (), "file")


def test_facts_are_those_of_the_artifact(tmp_path: Path) -> None:
    """Read once for each build; without one nothing is known."""
    objects = ObjectStore(tmp_path)
    details = canonical_json({"facts": {"scratch_bytes": 64}})
    publish(
        Manifest(
            kernel="k",
            target="cpu",
            fingerprint="",
            build=BuildKey("b" * 64),
            binary="",
            files={},
            details=details,
        ),
        objects,
    )
    built = make_trial("r.1", keys=Keys(build=BuildKey("b" * 64)))
    unbuilt = make_trial("r.2", keys=Keys())
    asked: list[Trial] = []

    def find(trial: Trial) -> Mapping[str, float]:
        asked.append(trial)
        return find_facts(trial, objects)

    cached = cache_facts(find)
    assert [cached(one) for one in (built, built, unbuilt)] == [{"scratch_bytes": 64}] * 2 + [{}]
    assert asked == [built, unbuilt]


def test_an_equal_pair_is_listed_once() -> None:
    """Of those that are equal in one number the better one in the other."""
    assert list_undominated([(2, 2), (1, 3), (2, 2), (1, 4), (3, 2), (3, 1)]) == [1, 0, 5]
