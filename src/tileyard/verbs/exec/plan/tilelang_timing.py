"""TileLang's timers, which time this CPU with Tileyard's own measurement."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

import numpy as np

from tileyard.base.model import TimingPolicy
from tileyard.measure.sampling import BestSoFar, CalledLaunch, measure
from tileyard.verbs.exec.plan.tally import Tally

_LONGEST_MS = 200.0
"""Maximum milliseconds of one measurement, whatever is requested: a CPU needs a thousand times as long."""


def time_call(
    function: Callable[[], object], budget_ms: float, best: BestSoFar | None = None
) -> Sequence[float]:
    """Times of single calls in ns within about this budget, one if a call takes longer; ends early if they
    are clearly worse than ``best``, which is lowered to the measured time.
    """
    best = best if best is not None else BestSoFar()
    budget_ns = int(min(budget_ms, _LONGEST_MS) * 1e6)
    launch = CalledLaunch(function)
    first = launch.sample_ns(1, 1)
    if first[0] >= budget_ns:
        best.lower(first[0])
        return first
    policy = TimingPolicy(
        min_samples=2,
        warmup_ns=budget_ns // 10,
        max_ns=budget_ns,
        min_sample_ns=20_000,
        group="script",
    )
    return measure(launch, policy, best).samples_ns


def name_timer(samples_ms: Sequence[float]) -> str:
    """The summary's name for a use of ``do_bench``: it shows if the function was too slow to repeat."""
    is_slow = len(samples_ms) == 1 and samples_ms[0] >= _LONGEST_MS
    return "do_bench of one call" if is_slow else "do_bench"


def time_on_cpu(tally: Tally) -> None:
    """Replace ``do_bench`` in all TileLang modules that have it."""

    def do_bench(
        fn: Callable[[], object],
        warmup: float = 25,
        rep: float = 100,
        *_: object,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        **__: object,
    ) -> object:
        samples = np.asarray(time_call(fn, rep)) / 1e6
        tally.note_timer(name_timer(samples.tolist()))
        if quantiles is not None:
            found = [float(value) for value in np.quantile(samples, quantiles)]
            return found[0] if len(found) == 1 else found
        return float(getattr(np, return_mode)(samples))

    original = import_module("tilelang.profiler.bench").do_bench
    for module in list(sys.modules.values()):
        if vars(module).get("do_bench") is original:
            setattr(module, "do_bench", do_bench)  # noqa: B010 (modules have no such attribute)
