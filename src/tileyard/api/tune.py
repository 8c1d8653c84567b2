"""``tune``: a tuning run from Python."""

from typing import Unpack, overload

from msgspec.structs import replace

from tileyard.api.running import (
    carry_on,
    console_for,
    find_kernel,
    printed_on,
    settings_for,
    show,
)
from tileyard.api.study import DispatchTable, Study
from tileyard.show.options import complete, takes
from tileyard.show.values import Share
from tileyard.verbs.tune.options.shapes import Shapes
from tileyard.verbs.tune.options.tune import (
    StudyOptions,
    TuneOptions,
    check_subject,
    start_table,
    start_tune,
)
from tileyard.verbs.tune.view.progress import StudyLayout
from tileyard.verbs.tune.view.study import print_study
from tileyard.verbs.tune.view.table import print_dispatch


@overload
def tune(kernel: object = None, **options: Unpack[StudyOptions]) -> Study: ...


@overload
def tune(
    kernel: object, *, shapes: Shapes, within: Share | None = None, **options: Unpack[StudyOptions]
) -> DispatchTable: ...


@takes(TuneOptions)
def tune(kernel: object = None, **options: Unpack[TuneOptions]) -> Study | DispatchTable:
    """Find the fastest config of a kernel: build, check and time every one, then let the best meet.

    Works from scripts, threads and notebooks: the kernel, its reference and ``where`` may be lambdas and
    closures, because they are called in this process; everything else happens in other processes.

    The kernel is a function decorated with ``tileyard.kernel``, ``tilelang.jit`` or
    ``tilelang.autotune``; a function that returns a PrimFunc; or ``"file.py::name"``. The file is
    imported in this process if a space, a filter, inputs or a function as reference are given. A
    reference is a NumPy or torch function that gets the inputs in parameter order and returns the
    outputs or writes them in place, or the name of one in the kernel's file.

    With ``from_`` the configs of a bundle are timed, without a kernel argument.

    ``study.best.config`` is the winner, ``study.best.load()`` its callable, and
    ``study.result.also_built`` has one result per target of ``also_build``. With ``shapes``, a file
    or its content as values, or with several values in ``arg`` or ``shape``, each shape has a study
    in one run, and a ``DispatchTable`` is returned instead.

    If other work disturbed the finals, ``study.result.disturbed`` is True and there is no winner;
    ``finals=True`` later holds those of what is recorded.

    Raises TileyardError if the request names something that does not exist, or cannot be carried out here.
    """
    given = complete(TuneOptions, options)
    check_subject(given, is_named=kernel is not None)
    settings = settings_for(given["home"])
    declared = {
        "space": given["space"],
        "where": given["where"],
        "inputs": _own(given["inputs"]),
        "flops": _own(given["flops"]),
        "reference": _own(given["reference"]),
    }
    start = start_tune("", "", given)  # before a file is imported: bad options are refused at once
    console = console_for(given["progress"])
    printed = printed_on(console)
    if start.bundle:
        packed = carry_on(console)(start, settings, StudyLayout())
        show(printed, print_study, packed, settings.home)
        return Study(packed, settings)
    table = start_table(start, given)
    found = find_kernel(kernel, declared, settings)
    carry, placed = carry_on(console, found.answer), found.place(start)
    if table is None:
        result = carry(placed, settings, StudyLayout())
        show(printed, print_study, result, settings.home)
        return Study(result, settings, kernel)
    tuned = carry(replace(table, tune=placed), settings, StudyLayout())
    show(printed, print_dispatch, tuned, settings.home)
    return DispatchTable(tuned, settings, kernel)


def _own(given: object) -> object:
    """A function of the caller's; None for a name, a number or a formula, which the verb itself holds."""
    return given if callable(given) else None
