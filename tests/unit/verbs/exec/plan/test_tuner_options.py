"""What a caller of TileLang's tuner asks for, and what is only its default."""

from types import SimpleNamespace
from typing import Any

import pytest

from tileyard.base.model import TimingPolicy

pytestmark = pytest.mark.slow  # TileLang is imported


def read(
    *args: object,
    is_decorated: bool = False,
    profile: tuple[int, int, float] = (25, 100, 30),
    **kwargs: object,
) -> Any:  # noqa: ANN401
    """The options of a call of ``run``."""
    from tileyard.verbs.exec.plan.tilelang_tuning import RunOptions

    warmup, rep, timeout = profile
    tuner = SimpleNamespace(
        jit_compile=print if is_decorated else None,
        profile_args=SimpleNamespace(warmup=warmup, rep=rep, timeout=timeout),
    )
    return RunOptions.read(tuner, args, kwargs)


@pytest.mark.parametrize(
    ("asked", "expected", "limit_s"),
    [
        ({}, None, None),
        ({"args": (25, 100, 100), "is_decorated": True}, None, None),
        ({"args": (25, 100, 30), "is_decorated": True}, None, 30),
        ({"args": (3, 100, 100), "is_decorated": True}, (3, 100), None),
        ({"args": (25, 100, 100)}, (25, 100), 100),
        ({"rep": 20}, (25, 20), None),
        ({"warmup": 0, "timeout": 180}, (1, 100), 180),
        ({"profile": (5, 7, 9.0)}, (5, 7), 9.0),
        ({"profile": (5, 7, 9.0), "rep": 20, "timeout": 4}, (25, 20), 4),
    ],
)
def test_defaults_of_tilelangs_ask_for_nothing(
    asked: dict[str, Any], expected: tuple[int, int] | None, limit_s: float | None
) -> None:
    """A decorator passes its defaults on, a chain does not; what ``run`` leaves, ``set_profile_args`` has."""
    options = read(*asked.pop("args", ()), **asked)
    policy = expected and TimingPolicy(warmup_launches=expected[0], launches=expected[1])
    assert (options.timing, options.timeout) == (policy, limit_s)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"rep": 0}, "rep=0 is below 1"),
        ({"rep": "many"}, "rep='many' is not a number"),
        ({"timeout": -1}, "timeout=-1 is below 0"),
        ({"group_compile_size": 0}, "group_compile_size=0 is below 1"),
        (
            {"benchmark_multi_gpu": False, "benchmark_devices": [0, 1]},
            "benchmark_multi_gpu=False contradicts several benchmark_devices",
        ),
        ({"early_stop": True, "early_stop_factor": 0.5}, "early_stop_factor=0.5 is below 1"),
        ({"repeat": 3}, r"AutoTuner.run\(\) got an unexpected keyword argument 'repeat'"),
    ],
)
def test_what_makes_no_sense_is_a_value_error(asked: dict[str, Any], says: str) -> None:
    """One line that names it."""
    with pytest.raises(ValueError, match=says):
        read(**asked)
