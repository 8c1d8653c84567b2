"""The toolchain of a run, as every process that runs steps finds it.

It is told in one variable and applied to steps alone: our own processes must not load its libraries.
"""

import os
from collections.abc import Mapping

import msgspec

from tileyard.model import Record

VARIABLE = "TILEYARD_TOOLCHAIN"


class StepToolchain(Record):
    """Where a toolchain lies, and the variables that its programs need; both empty for none."""

    folder: str = ""
    env: dict[str, str] = {}

    @property
    def places(self) -> dict[str, str]:
        """What ``{toolchain}`` stands for."""
        return {"toolchain": self.folder} if self.folder else {}


def tell_toolchain(toolchain: StepToolchain) -> None:
    """Let the processes that this one starts from now on find it."""
    os.environ[VARIABLE] = msgspec.json.encode(toolchain).decode()


def find_toolchain(environ: Mapping[str, str] = os.environ) -> StepToolchain:
    """The toolchain that whoever started this process has told of."""
    text = environ.get(VARIABLE)
    return msgspec.json.decode(text, type=StepToolchain) if text else StepToolchain()
