"""The options of ``regress`` and ``bisect`` for scripts."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from tileyard.base.errors import UsageError
from tileyard.base.measures import Measure
from tileyard.show.options import Option, Switch, Text
from tileyard.show.values import refuse_unused

Scripts = Annotated[
    bool,
    Option(
        "The files are scripts, each run as `tileyard exec` runs it.",
        flags=("--exec",),
        default=False,
    ),
]
Printed = Annotated[
    str,
    Text(
        "With --exec: compare the number that scripts print, such as 'latency: ([\\d.]+) ms', "
        "and not their CPU time.",
        metavar="REGEX",
    ),
]
Higher = Annotated[bool, Switch("With --printed: the higher number is the better one.")]


def read_measure(
    files: Sequence[str], values: Mapping[str, Any], for_kernels: Mapping[str, object]
) -> Measure | None:
    """The number that scripts print, None for their time; a word after its group is the unit.

    Raises UsageError, also for options without effect: those ``for_kernels`` have none on scripts.
    """
    printed, higher = values["printed"], values["higher"]
    if not values["exec"]:
        refuse_unused("without --exec", {"--printed": printed})
    else:
        refuse_unused("with --exec", for_kernels)
        names = [file for file in files if "::" in file]
        refuse_unused("with --exec: a script is compared as a whole", dict.fromkeys(names, True))
    if not printed:
        refuse_unused("without --printed", {"--higher": higher})
        return None
    try:
        groups = re.compile(printed).groups
    except re.error as error:
        raise UsageError(f"--printed {printed!r} is not a regular expression: {error}") from None
    if not groups:
        raise UsageError(f"--printed {printed!r} has no group (...) that is the number")
    unit = re.search(r"\)\s*([A-Za-z]\w*(?:/\w+)?)", printed)
    return Measure(
        of="printed",
        pattern=printed,
        unit=unit[1] if unit else "",
        better="higher" if higher else "lower",
    )
