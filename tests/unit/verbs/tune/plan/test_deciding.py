"""Configs as a source of cases that are built and not run."""

import asyncio

import pytest

from tileyard.artifacts.manifest import Build
from tileyard.base.events import StopReason
from tileyard.base.model import Limits, Outcome, Value
from tileyard.verbs.tune.plan.deciding import Sweep, make_cases, name_config
from tileyard.verbs.tune.plan.space import OpenSpace
from tileyard.verbs.tune.result import CompileResult

LIMITS = Limits(build_s=7.0)


def _space(*configs: dict[str, Value]) -> OpenSpace:
    return OpenSpace(kernel="k", arguments={"N": 4}, configs=list(configs), size=9, flops=0.0)


def test_every_config_is_asked_once_and_in_order() -> None:
    """Batches of one case each, as many as are wanted, until none is left."""
    sweep = Sweep(make_cases(_space({"a": 1}, {"a": 2}, {"a": 3}), "k.py", "cpu", LIMITS))
    expected = [["a=1", "a=2"], ["a=3"], []]
    asked = [asyncio.run(sweep.ask(2)) for _ in expected]
    assert [[batch.cases[0].id for batch in batches] for batches in asked] == expected
    assert all(case.limits == LIMITS and case.timing is None for case in sweep.cases)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"block_M": 64, "dtype": "float16"}, "block_M=64,dtype=float16"),
        ({"a": -1.5, "b": True}, "a=-1.5,b=True"),
        ({"path": "a/b"}, "config-3"),
        ({"text": "x" * 200}, "config-3"),
        ({}, "config-3"),
    ],
)
def test_names_can_be_folders(config: dict[str, Value], expected: str) -> None:
    """A config is called by its values, or by its number where these are no name."""
    assert name_config(config, 3) == expected


def test_configs_that_look_alike_have_names_of_their_own() -> None:
    """A number and a text of the same digits are two configs."""
    cases = make_cases(_space({"a": 1}, {"a": "1"}), "k.py", "cpu", LIMITS, "base/")
    expected = ["base/a=1", "base/config-2"]
    assert [case.id for case in cases] == expected
    assert [case.config for case in cases] == [{"a": 1}, {"a": "1"}]


@pytest.mark.parametrize(
    ("outcomes", "reason", "expected"),
    [
        ((Outcome.PASSED, Outcome.PASSED), "done", 0),
        ((Outcome.PASSED, Outcome.COMPILE_ERROR), "done", 1),
        ((Outcome.PASSED, Outcome.NOT_RUN), "interrupted", 130),
    ],
)
def test_exit_status(outcomes: tuple[Outcome, ...], reason: StopReason, expected: int) -> None:
    """0 where all were built, 1 where one was not, 130 where it was interrupted."""
    result = CompileResult(
        run="r",
        kernel="k",
        arguments={},
        target="cuda:sm_80",
        space=2,
        configs=tuple(Build(case="c", config={}, outcome=outcome) for outcome in outcomes),
        reason=reason,
    )
    assert result.exit_status == expected
