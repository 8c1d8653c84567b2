"""The results of tuning runs: ``Study``, its ``Winner``, ``DispatchTable`` for many; and how Python tunes."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from msgspec.structs import replace

from tileyard.api.kernels import (
    LoadedKernel,
    carry_on,
    console_for,
    find_kernel,
    load_trial,
    printed_on,
    settings_for,
    show,
)
from tileyard.base.errors import NoWinnerError, UsageError
from tileyard.base.model import Outcome, Trial, Value
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of, install_extra
from tileyard.frontend.declare import list_rules
from tileyard.show.options import complete, takes
from tileyard.show.values import Share
from tileyard.show.words import ask_about_reference, format_config, format_time
from tileyard.store.choices import encode_choices, list_choices
from tileyard.store.winners import pack_winners
from tileyard.verbs.tune.options import (
    Shapes,
    StudyOptions,
    TuneOptions,
    check_subject,
    start_table,
    start_tune,
)
from tileyard.verbs.tune.result import CurvePoint, Final, StudyResult, TableResult, Tradeoff
from tileyard.verbs.tune.view.progress import StudyLayout
from tileyard.verbs.tune.view.study import print_study, render_study
from tileyard.verbs.tune.view.table import print_dispatch, render_dispatch
from tileyard.verbs.tune.view.trials import Trials, list_columns, list_trials

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tileyard.api.dispatch import Dispatch


class Winner:
    """The best config of a study, its ``trial`` in the store, and ``latency_ns``, its median time
    per launch in nanoseconds: in the finals, or in the screening if there were none.
    """

    def __init__(self, trial: Trial, settings: Settings, result: StudyResult) -> None:
        self.config: dict[str, Value] = dict(trial.config)
        self.trial = trial
        measured = result.measurement_of(trial)
        self.latency_ns = measured.median_ns if measured is not None else 0.0
        self._settings = settings
        self._device = result.device.partition("@")[0]  # of this host, where another had it

    def load(self) -> LoadedKernel:
        """The compiled kernel as a function.

        It takes the kernel's tensors in parameter order as NumPy arrays or torch CPU tensors of the
        shapes and dtypes it was tuned for, and its scalars. Called with only the inputs it returns
        the outputs, one or a tuple, as the same kind of array; called with all tensors it writes
        the outputs in place. Raises BindError if an array does not fit.

        A kernel for the target ``cuda`` takes torch CUDA tensors, or any arrays with
        ``__cuda_array_interface__`` or DLPack. It launches on the caller's current stream, and does not wait.
        """
        return load_trial(self.trial, self._settings, self._device)

    def __repr__(self) -> str:
        config = format_config(self.config) or "(the only one)"
        return f"<best config {config} of {self.trial.kernel}: {format_time(self.latency_ns)}>"


class Study:
    """The result of a tuning run.

    ``result`` is the whole record; ``trials`` is the table of the screened configs; ``finals`` are
    the results of the best configs when they were timed in turn, the winner first.
    """

    def __init__(self, result: StudyResult, settings: Settings, kernel: object = None) -> None:
        self.result = result
        self._settings = settings
        self._kernel = kernel

    def dispatch(
        self,
        *,
        default: Mapping[str, object] | None = None,
        arguments: Callable[..., Mapping[str, object]] | None = None,
        nearest: bool = True,
    ) -> "Dispatch":
        """The kernel as a function that uses, for each shape, the config that won in this study or
        another one.

        ``default``, ``arguments`` and ``nearest`` are as in ``tileyard.tuned``.
        """
        from tileyard.api.dispatch import Dispatch, find_held

        return Dispatch(
            find_held(self._kernel, self.result.kernel),
            self._settings,
            target=self.result.target,
            device=self.result.device.partition("@")[0],
            default=default,
            arguments=arguments,
            nearest=nearest,
        )

    def export(self, path: str | os.PathLike[str], *, binaries: bool = False) -> None:
        """Write the winner to a file for ``tileyard import``, or to a bundle with its binary.
        Raises NoWinnerError if there is none.
        """
        trial = self.best.trial.id
        known = list_choices(self._settings.home, self.result.kernel)
        mine = [one for one in known if one.trial == trial]
        if binaries:
            pack_winners(mine, self._settings.home, Path(path))
        else:
            Path(path).write_bytes(encode_choices(mine))

    @property
    def best(self) -> Winner:
        """The winner. Raises NoWinnerError, with the number of each outcome, if no config passed,
        or if the study was disturbed.
        """
        if self.result.disturbed:
            raise NoWinnerError(
                f"the study of {self.result.kernel} was disturbed: {self.result.disturbances[-1]}",
                "tune(..., finals=True) holds the finals of what is recorded",
            )
        if self.result.best is None:
            ended = ", ".join(
                f"{self.result.count(outcome)} {outcome}"
                for outcome in Outcome
                if self.result.count(outcome)
            )
            hint = ask_about_reference(self.result.trials, "configs")
            hint = "a check is required" if self.result.unchecked else hint
            raise NoWinnerError(f"no config of {self.result.kernel} passed: {ended}", hint)
        return Winner(self.result.best, self._settings, self.result)

    @property
    def others(self) -> "tuple[Study, ...]":
        """The same study on devices of other kinds, each with its own winner; this one is for the
        first kind that was named.
        """
        return tuple(Study(one, self._settings, self._kernel) for one in self.result.others)

    @property
    def trials(self) -> "DataFrame | Trials":
        """The configs, in the order in which they ended: a DataFrame if pandas is installed,
        otherwise a tuple of records.

        The DataFrame has one column per parameter, then ``outcome``, ``median_ns`` with the bounds
        ``low_ns`` and ``high_ns``, ``gflops`` if the kernel's work is known, ``message``, and
        ``trial``, the id for ``tileyard.load``. The tuple is ``result.trials`` and prints as a
        table; code that needs the same type everywhere reads ``result.trials``.
        """
        try:
            from pandas import DataFrame
        except ImportError:
            return list_trials(self.result)
        return DataFrame(list_columns(self.result))

    def plot(self, *panels: str, axes: "Axes | None" = None) -> "Figure":
        """The study as a matplotlib figure, which notebooks display, or only the panels that are named.

        ``progress`` is the best time so far, ``finals`` the finalists with their intervals, ``effects`` the
        best and the median time for each value of a parameter, and ``map`` the best time for each
        combination of the two parameters that matter most. One panel can be drawn on your own ``axes``.
        Raises UsageError if matplotlib is missing, and for a panel with nothing to draw.
        """
        try:
            from tileyard.verbs.tune.view.figure import draw_study
        except ImportError as error:
            hint = install_extra("png")
            raise UsageError(f"plot() needs matplotlib: {error}", hint) from None
        return draw_study(self.result, panels, axes)

    @property
    def finals(self) -> tuple[Final, ...]:
        """The finalists, the winner first; empty if no other config came near it."""
        return self.result.finals

    @property
    def pareto(self) -> tuple[Tradeoff, ...]:
        """The Pareto set of latency and the measure that ``tune(..., pareto=NAME)`` names, the fastest first;
        empty without one.
        """
        return self.result.pareto

    @property
    def ties(self) -> list[dict[str, Value]]:
        """Configs not to be distinguished from the winner: tied in the finals, or of the same binary."""
        same = () if self.result.best is None else self.result.same_binary(self.result.best)
        tied = [final.config for final in self.result.finals[1:] if final.tied]
        return [one.config for one in same if one is not self.result.best] + tied

    def __repr__(self) -> str:
        configs = count_of(len(self.result.trials), "config")
        return f"<study {self.result.run} of {self.result.kernel}: {configs}>"

    def _repr_html_(self) -> str:
        return render_study(self.result, self._settings.home)


class DispatchTable:
    """The result of tuning for many shapes.

    ``result`` is the whole record, ``studies`` are those of the shapes, in their order. ``table``
    has the arguments and the config of each shape for which a config passed, and ``curve`` shows
    how many shapes fewer configs serve.
    """

    def __init__(self, result: TableResult, settings: Settings, kernel: object = None) -> None:
        self.result = result
        self.studies = tuple(Study(one, settings, kernel) for one in result.studies)
        self._settings = settings

    @property
    def table(self) -> list[tuple[dict[str, Value], dict[str, Value]]]:
        """Arguments and config of each shape."""
        return [(row.arguments, row.trial.config) for row in self.result.rows if row.trial]

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """The result of one config, of two, and so on up to the table's number."""
        return self.result.curve

    def dispatch(
        self,
        *,
        default: Mapping[str, object] | None = None,
        arguments: Callable[..., Mapping[str, object]] | None = None,
        nearest: bool = True,
    ) -> "Dispatch":
        """The kernel as a function that uses the table's config for each shape, as ``Study.dispatch``."""
        return self.studies[0].dispatch(default=default, arguments=arguments, nearest=nearest)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a file for ``tileyard import``. Raises NoWinnerError if it is empty."""
        trials = {row.trial.id for row in self.result.rows if row.trial}
        if not trials:
            raise NoWinnerError(f"no config of {self.result.kernel} passed for any shape")
        known = list_choices(self._settings.home, self.result.kernel)
        Path(path).write_bytes(encode_choices([one for one in known if one.trial in trials]))

    def __repr__(self) -> str:
        configs = count_of(len(self.curve[-1].configs) if self.curve else 0, "config")
        shapes = count_of(len(self.studies), "shape")
        return f"<dispatch table {self.result.run} of {self.result.kernel}: {configs} for {shapes}>"

    def _repr_html_(self) -> str:
        return render_dispatch(self.result, self._settings.home)


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
        "where": [rule for rule in list_rules(given["where"]) if callable(rule)] or None,
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
