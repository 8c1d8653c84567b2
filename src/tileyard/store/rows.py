"""Converts trials to rows of the tables and back, and reads parts of many trials at once."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import Record, Trial, Value
from tileyard.targets.registry import is_timed

Decoded = TypeVar("Decoded")
Row = dict[str, object]
DURATIONS = 4096
"""Number of trials that are read to learn how long cases ran."""


class _Duration(Record):
    arguments: dict[str, Value]
    config: dict[str, Value]
    run_s: float = 0.0
    control: bool = False


_DURATION_DECODER = msgspec.json.Decoder(_Duration)
_TRIAL_DECODER = msgspec.json.Decoder(Trial)


def try_trial(record: object) -> Trial | None:
    """The trial of a row; None if it cannot be read: a file that others write can contain anything."""
    trial = try_decode(_TRIAL_DECODER, record)
    return trial if trial is None or type(record) is not bytes else upgrade(trial, record)


def upgrade(trial: Trial, text: bytes) -> Trial:
    """The trial in the JSON ``text`` of any version. Version 1 has no fields for a suite's case: the testcase
    is in ``kernel``, name and attempt in the arguments. Tests of pytest have no arguments.
    """
    arguments, is_test = trial.arguments, trial.target == "pytest"
    is_case = "case" in arguments and trial.case.startswith(f"{trial.kernel}/")
    if b'"testcase":' in text or not (is_test or is_case):
        return trial
    attempt = arguments.get("attempt")
    if not (isinstance(attempt, int) and trial.case.endswith(f"~{attempt}")):
        attempt = 1
    return msgspec.structs.replace(
        trial,
        case=trial.case if attempt == 1 else trial.case.removesuffix(f"~{attempt}"),
        attempt=attempt,
        testcase=trial.kernel,
        kernel=trial.kernel if is_test else "",
        arguments={},
    )


def try_decode(decoder: msgspec.json.Decoder[Decoded], record: object) -> Decoded | None:
    """The content of a JSON text; None if it cannot be read."""
    try:
        return decoder.decode(record)  # type: ignore[arg-type] # what is no text is a TypeError
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
        return None


def durations_of(records: Iterable[object]) -> dict[str, float]:
    """Seconds that cases ran, by ``canonical_json((arguments, config))``; the last one counts."""
    found: dict[str, float] = {}
    for record in records:
        trial = try_decode(_DURATION_DECODER, record)
        if trial is not None and trial.run_s and not trial.control:
            found[canonical_json((trial.arguments, trial.config))] = trial.run_s
    return found


def encode_config(config: Mapping[str, Value]) -> str:
    """A config as its column holds it."""
    return msgspec.json.encode(config).decode() if config else "{}"


def row_of(trial: Trial) -> Row:
    """The columns of a trial in both tables."""
    return {
        "id": trial.id,
        "run": trial.run,
        "case_id": trial.case,
        "label": trial.kernel or trial.testcase,
        "shape": trial.shape,
        "side": trial.side,
        "config": encode_config(trial.config),
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
        "run_s": trial.run_s if is_timed(trial.target) else None,
        "record": msgspec.json.encode(trial),
        "testcase": trial.testcase,
        "attempt": trial.attempt,
        "suite": trial.suite,
    }
