"""What faults do to the winner: the same GEMM tuned with and without faulty configs in its space.

Both winners are then timed in turn in one process. Prints their ratio, which should be 1 within 1 %,
and how the configs ended.
"""

import math
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tileyard
from tileyard.measure.paired import compare_pair, interleave

KERNEL = f"{Path(__file__).parent / 'faulty_gemm.py'}::faulty_gemm"
ROUNDS = 60


class TimedCall:
    """A loaded kernel that can be sampled."""

    def __init__(self, study: tileyard.Study, arrays: Sequence[np.ndarray]) -> None:
        self._kernel = study.best.load()
        self._arrays = arrays

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """As in ``targets.base.Launch``."""
        times = []
        for _ in range(samples):
            started_ns = time.perf_counter_ns()
            for _ in range(launches):
                self._kernel(*self._arrays)
            times.append((time.perf_counter_ns() - started_ns) / launches)
        return times


def main() -> None:
    """Tune twice, compare the winners."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((768, 768), dtype=np.float32) for _ in range(2))
    studies = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, faults in (
            ("clean", ["none"]),
            ("faulty", ["none", "endless", "wrong", "refused"]),
        ):
            study = tileyard.tune(
                KERNEL,
                config={"fault": faults},
                run_limit="3s",
                home=folder,
                resume=False,
            )
            studies[name] = study
            ended = Counter(str(trial.outcome) for trial in study.result.trials)
            print(f"{name:7} {study.best.config}   {dict(ended)}")
        calls = [TimedCall(study, (a, b, np.empty_like(a))) for study in studies.values()]
        clean, faulty = interleave(calls, ROUNDS, [1, 1])
    ratio = compare_pair(clean, faulty, 0.95)
    low, high = math.exp(ratio.low), math.exp(ratio.high)
    print(f"winner with faults / winner without: {ratio.ratio:.4f} [{low:.4f}, {high:.4f}]")


if __name__ == "__main__":
    main()
