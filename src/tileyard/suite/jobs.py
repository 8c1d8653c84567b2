"""Jobs of a CI run: what each is asked to run of which suite, and what that comes to, check by check."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tileyard.errors import UsageError
from tileyard.model import Digest, Record
from tileyard.suite.content import Contents
from tileyard.suite.outlook import COMMAND, target_of
from tileyard.suite.records import CommandWork, Expected, SuiteCase

KERNELS = "cpu"
"""What kernels are compiled for where nothing else is said."""


class Wanted(Record):
    """What a job runs of a suite.

    ``on`` is what it runs on where that matters: the target of kernels, the class of devices of
    programs. ``toolchain`` is any text: with other texts other toolchains are used. ``select`` holds
    texts as ``tileyard test --select`` takes them.
    """

    suite: str
    policy: str = "full"
    on: str = ""
    toolchain: str = ""
    select: tuple[str, ...] = ()

    @property
    def kernels(self) -> str:
        """The target of kernels."""
        return self.on or KERNELS

    @property
    def classes(self) -> dict[str, str]:
        """For each target the class of devices whose times count; empty for all."""
        return {self.kernels: "", COMMAND: self.on}


class Check(Record):
    """One thing that a job runs. ``is_guess`` says that it never ran, so ``seconds`` is a guess."""

    identity: Digest
    name: str
    seconds: float
    is_guess: bool = False


class CiJob(Record):
    """A job with all its checks. One that ``is_independent`` is to stay as it is.

    ``setup_s`` is what it takes besides, so what is saved where nothing of it is left.
    """

    name: str
    checks: tuple[Check, ...] = ()
    is_independent: bool = False
    setup_s: float = 0.0


def parse_selection(text: str) -> Wanted:
    """``SUITE[:POLICY][@ON][?TEXT,TEXT...]``. Raises UsageError where that means nothing.

    A text that is a file or folder as it stands is a suite, whatever signs are in its name.
    """
    rest = text
    select: tuple[str, ...] = ()
    if not Path(text).exists():
        rest, asks, listed = text.partition("?")
        select = tuple(one for one in listed.split(",") if one)
        if asks and not select:
            raise UsageError(f"{text!r}: no case is named behind the question mark")
    on = policy = ""
    if not Path(rest).exists():
        rest, at, on = rest.partition("@")
        if at and not on:
            raise UsageError(f"{text!r}: nothing is named behind the @")
    if not Path(rest).exists():
        rest, colon, policy = rest.rpartition(":") if ":" in rest else (rest, "", "")
        if colon and not policy:
            raise UsageError(f"{text!r}: no policy is named behind the colon")
    if not rest:
        raise UsageError(f"{text!r} names no suite", "write SUITE:POLICY, SUITE?TEXT or SUITE")
    return Wanted(suite=rest, policy=policy or "full", on=on, select=select)


def list_checks(
    cases: Iterable[SuiteCase],
    folder: Path,
    wanted: Wanted,
    expected: Mapping[str, Expected],
    contents: Contents,
) -> Iterator[Check]:
    """The checks that these cases of a suite in ``folder`` are, each with the time it should take."""
    for case in cases:
        on = wanted.on if isinstance(case.work, CommandWork) else target_of(case, wanted.kernels)
        one = expected[case.id]
        yield Check(
            identity=contents.identify(case, folder, " ".join((on, wanted.toolchain)).strip()),
            name=case.id,
            seconds=one.seconds,
            is_guess=one.source != "history",
        )
