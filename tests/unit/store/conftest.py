"""What the tests of the store share: a way to make trials."""

from collections.abc import Callable

import pytest

from tileyard.model import BuildKey, Keys, Measurement, MeasurementKey, Outcome, RunKey, Trial

MakeTrial = Callable[..., Trial]


@pytest.fixture
def make_trial() -> MakeTrial:
    """A trial with the given id; keys are given as texts, anything else as fields of Trial."""

    def make(
        trial_id: str,
        build: str = "",
        run_key: str = "",
        measurement_key: str = "",
        **fields: object,
    ) -> Trial:
        content: dict[str, object] = {
            "run": "r1",
            "case": "c1",
            "batch": "b1",
            "kernel": "gemm",
            "arguments": {"M": 64},
            "config": {"block_M": 32, "fast": True},
            "target": "cpu",
            "outcome": Outcome.PASSED,
            "started_at": 1.0,
            "keys": Keys(
                build=BuildKey(build),
                run=RunKey(run_key),
                measurement=MeasurementKey(measurement_key),
            ),
            "measurement": Measurement(
                median_ns=2.5, low_ns=2.0, high_ns=3.0, confidence=0.95, samples_ns=(2.0, 2.5, 3.0)
            ),
        }
        return Trial(id=trial_id, **(content | fields))  # type: ignore[arg-type]  # fields by name

    return make
