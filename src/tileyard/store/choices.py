"""Stores what studies decided: the config that won, by a kernel's arguments and silicon. One
append-only file, for studies and imports; the latest line of a subject counts.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tileyard.artifacts.copying import writing_to
from tileyard.artifacts.keys import canonical_json
from tileyard.base.errors import UsageError
from tileyard.base.model import BuildKey, Record, TensorSpec, Value
from tileyard.base.modes import append_file
from tileyard.base.rules import Rule

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
