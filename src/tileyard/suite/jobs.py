"""Jobs of a CI run: what each is asked to run of which suite, and what that comes to, check by check."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tileyard.devices.names import class_of
from tileyard.errors import UsageError
from tileyard.model import Digest, Record
from tileyard.store.run_times import RunTime
from tileyard.suite.content import Contents
from tileyard.suite.outlook import COMMAND, target_of
from tileyard.suite.records import CommandWork, Expected, SuiteCase

KERNELS = "cpu"
"""What kernels are compiled for where nothing else is said."""
_PARTS = re.compile(r"(?::(?P<policy>[^@?]*))?(?:@(?P<on>[^?]*))?(?:\?(?P<select>.*))?", re.DOTALL)


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

    def find_classes(self, times: Iterable[RunTime]) -> dict[str, str]:
        """For each target the class of devices whose times count; empty for all.

        Where nothing ever ran on the class that is named, times of other devices are better than none.
        """
        is_known = any(class_of(time.device) == self.on for time in times)
        return {self.kernels: "", COMMAND: self.on if is_known else ""}


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

    As much of the text as is a file or folder is the suite, whatever signs are in its name.
    """
    ends = [found.start() for found in re.finditer("[:@?]", text)]
    prefixes = [text[:end] for end in (len(text), *reversed(ends))]
    suite = next((one for one in prefixes if one and Path(one).exists()), prefixes[-1])
    parts = _PARTS.fullmatch(text[len(suite) :])
    if not suite or parts is None:
        raise UsageError(f"{text!r} names no suite", "write SUITE, SUITE:POLICY or SUITE?TEXT")
    for part, name in (("policy", "policy"), ("on", "target or class"), ("select", "case")):
        if parts[part] is not None and not parts[part].strip(","):
            raise UsageError(f"{text!r}: no {name} is named behind its sign")
    return Wanted(
        suite=suite,
        policy=parts["policy"] or "full",
        on=parts["on"] or "",
        select=tuple(one for one in (parts["select"] or "").split(",") if one),
    )


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
