"""Trials as rows of the table, and what is read of many of them at once."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from tileyard.artifacts.keys import canonical_json
from tileyard.model import Record, Trial, Value

Decoded = TypeVar("Decoded")
DURATIONS = 4096
"""How many trials are read to learn how long cases ran."""


class _Duration(Record):
    """The part of a Trial that says how long it ran."""

    arguments: dict[str, Value]
    config: dict[str, Value]
    run_s: float = 0.0


_DURATION_DECODER = msgspec.json.Decoder(_Duration)
_TRIAL_DECODER = msgspec.json.Decoder(Trial)


def try_trial(record: object) -> Trial | None:
    """The trial of a row; None where it cannot be read: a file that others write can hold anything."""
    return _try_decode(_TRIAL_DECODER, record)


def _try_decode(decoder: msgspec.json.Decoder[Decoded], record: object) -> Decoded | None:
    try:
        return decoder.decode(record)  # type: ignore[arg-type] # what is no text is a TypeError
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
        return None


def durations_of(records: Iterable[object]) -> dict[str, float]:
    """How long cases ran, in seconds, by ``canonical_json((arguments, config))``; the last one counts."""
    found: dict[str, float] = {}
    for record in records:
        trial = _try_decode(_DURATION_DECODER, record)
        if trial is not None and trial.run_s:
            found[canonical_json((trial.arguments, trial.config))] = trial.run_s
    return found


def row_of(trial: Trial) -> dict[str, object]:
    """The columns of a trial."""
    return {
        "id": trial.id,
        "run": trial.run,
        "case_id": trial.case,
        "kernel": trial.kernel,
        "target": trial.target,
        "device": trial.device,
        "outcome": trial.outcome.value,
        "control": trial.control,
        "reused": trial.reused,
        "started_at": trial.started_at,
        "median_ns": trial.measurement.median_ns if trial.measurement else None,
        "build_key": trial.keys.build,
        "golden_key": trial.keys.golden,
        "run_key": trial.keys.run,
        "measurement_key": trial.keys.measurement,
        "run_s": trial.run_s,
        "record": msgspec.json.encode(trial),
    }
