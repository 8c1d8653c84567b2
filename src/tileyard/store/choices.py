"""Stores what studies decided: the config that won, by a kernel's arguments and silicon. One
append-only file, for studies and imports; the latest line of a subject counts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tileyard.artifacts.copying import writing_to
from tileyard.artifacts.objects import canonical_json
from tileyard.base.decoding import decode_json
from tileyard.base.errors import HomeError, UsageError
from tileyard.base.events import CaseEnded
from tileyard.base.model import BuildKey, Record, Rule, TensorSpec, Trial, Value
from tileyard.base.modes import append_file
from tileyard.store.base import Store, TrialQuery
from tileyard.store.events import EventLog, run_file

FILE_NAME = "choices.jsonl"


class Choice(Record):
    """The config that won. ``tensors`` are in calling order, ``latency_ns`` is the median of a
    launch, ``file`` the kernel's without folders, ``trial`` the winner's in the home where it was
    tuned, ``build`` its binary's key, ``rule`` as in an Elaborated.
    """

    kernel: str
    arguments: dict[str, Value]
    target: str
    silicon: str
    config: dict[str, Value]
    tensors: tuple[TensorSpec, ...]
    latency_ns: float
    file: str = ""
    trial: str = ""
    build: BuildKey = BuildKey("")
    rule: Rule | None = None

    @property
    def subject(self) -> str:
        """The subject: a key of which only one choice holds."""
        return canonical_json((self.kernel, self.file, self.arguments, self.target, self.silicon))


def measure_distance(arguments: Mapping[str, Value], others: Mapping[str, Value]) -> float:
    """How many doublings two sets of arguments are apart, summed over all numbers; infinite if another value
    differs, or a name.
    """
    if arguments.keys() != others.keys():
        return math.inf
    return sum(_count_doublings(value, others[name]) for name, value in arguments.items())


def _count_doublings(one: Value, other: Value) -> float:
    if type(one) is type(other) and one == other:
        return 0.0
    if isinstance(one, bool | str) or isinstance(other, bool | str):
        return math.inf
    return abs(math.log2(one / other)) if min(one, other) > 0 else abs(one - other)


def add_choices(home: Path, choices: Iterable[Choice]) -> None:
    """Append choices to the file. Raises HomeError."""
    lines = bytearray()
    for choice in choices:
        lines += b"\n" + msgspec.json.encode(choice) + b"\n"
    path = home / FILE_NAME
    with writing_to(path):
        append_file(path, lines)


def list_choices(home: Path, kernel: str = "") -> list[Choice]:
    """The latest choice of each subject, of one kernel or of all; torn lines are skipped."""
    latest: dict[str, Choice] = {}
    decode = msgspec.json.Decoder(Choice).decode
    try:
        data = (home / FILE_NAME).read_bytes()
    except FileNotFoundError:
        return []
    for line in data.split(b"\n"):
        try:
            choice = decode(line) if line else None
        except msgspec.DecodeError:
            continue
        if choice is not None and kernel in ("", choice.kernel):
            latest[choice.subject] = choice
    return list(latest.values())


class ChoiceFile(Record):
    """The file in which choices travel to another home."""

    choices: tuple[Choice, ...]
    tileyard: Literal["choices 1"] = "choices 1"


def encode_choices(choices: Sequence[Choice]) -> bytes:
    """A file of choices: JSON, one choice after the other."""
    return msgspec.json.format(msgspec.json.encode(ChoiceFile(choices=tuple(choices)))) + b"\n"


def decode_choices(data: bytes, place: str) -> tuple[Choice, ...]:
    """The choices in a file. Raises UsageError with the key that is wrong."""
    try:
        return msgspec.json.decode(data, type=ChoiceFile).choices
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{place} is not a file of choices: {error}", "tileyard export writes one"
        ) from None


def as_python(choices: Sequence[Choice]) -> str:
    """A table to paste into code: configs by target and silicon, and there by kernel and arguments."""
    lines = ["CONFIGS = {"]
    for place in dict.fromkeys((choice.target, choice.silicon) for choice in choices):
        lines.append(f"    {place!r}: {{")
        lines += [
            f"        ({one.kernel!r}, {tuple(one.arguments.items())!r}): {one.config!r},"
            for one in choices
            if (one.target, one.silicon) == place
        ]
        lines.append("    },")
    return "\n".join([*lines, "}"])


class Line(Record, omit_defaults=True):
    """The first line, which states what the file is; or a trial; or a study's choice by these trials."""

    tileyard: Literal["", "trials 1"] = ""
    trial: Trial | None = None
    choice: Choice | None = None


def encode_trials(trials: Iterable[Trial], choices: Iterable[Choice]) -> bytes:
    """A file of these trials, and of those choices whose winner is among them, without logs."""
    carried = {one.id: msgspec.structs.replace(one, log="") for one in trials}
    lines = (
        Line(tileyard="trials 1"),
        *(Line(trial=trial) for trial in carried.values()),
        *(Line(choice=choice) for choice in choices if choice.trial in carried),
    )
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def decode_trials(data: bytes, place: str) -> tuple[list[Trial], list[Choice]]:
    """The content of a file. Raises UsageError with the number of a wrong line."""
    lines: list[Line] = []
    trials: dict[str, Trial] = {}
    try:
        for text in data.removesuffix(b"\n").split(b"\n"):
            line = decode_json(text, Line)
            if (not lines) != bool(line.tileyard):
                raise HomeError("the first line, and only the first, must be `trials 1`")
            if line.trial is not None:
                trial = msgspec.structs.replace(line.trial, log="")
                _check_name(trial)
                if trials.setdefault(trial.id, trial) != trial:
                    raise HomeError(f"trial {trial.id} occurs twice, with different results")
            lines.append(line)
    except (msgspec.DecodeError, HomeError) as error:
        raise UsageError(
            f"{place}:{len(lines) + 1}: not a line of a trials file: {error}",
            "`tileyard trials export` writes one",
        ) from None
    choices = [line.choice for line in lines if line.choice is not None]
    return list(trials.values()), [choice for choice in choices if choice.trial in trials]


def _check_name(trial: Trial) -> None:
    """Raise HomeError for a trial that no run can have given its id."""
    run_file(Path(), trial.run)
    run, _, number = trial.id.rpartition(".")
    if run != trial.run or not number.isdecimal():
        raise HomeError(f"{trial.id!r} cannot be the id of a trial of run {trial.run}")


def import_trials(
    home: Path, store: Store, trials: Sequence[Trial], choices: Iterable[Choice]
) -> list[Trial]:
    """Record the trials that are missing, with their choices, and return them. Raises HomeError,
    and UsageError if another trial has the same id: then nothing is recorded.
    """
    runs = dict.fromkeys(trial.run for trial in trials)
    recorded = [one for run in runs for one in store.list_trials(TrialQuery(run=run, limit=0))]
    known = {one.id: msgspec.structs.replace(one, log="") for one in recorded}
    for trial in trials:
        if known.get(trial.id, trial) != trial:
            raise UsageError(f"another trial has the id {trial.id} in {home}")
    fresh = {trial.id: trial for trial in trials if trial.id not in known}
    for run in runs:
        if own := [trial for trial in fresh.values() if trial.run == run]:
            with EventLog(home, run) as log:  # a lost store is rebuilt from it
                for trial in own:
                    log.add(CaseEnded(trial=trial))
                log.flush()
    add_choices(home, (choice for choice in choices if choice.trial in fresh))
    store.record_all(list(fresh.values()))
    return list(fresh.values())
