"""``tune``: a tuning run from Python."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tileyard.api.kernels import settings_for
from tileyard.api.study import Study
from tileyard.artifacts.objects import ObjectStore
from tileyard.errors import UsageError
from tileyard.events import Event
from tileyard.frontend.declare import kernel as declare_kernel
from tileyard.frontend.recipes import read_recipe
from tileyard.model import CheckPolicy, Limits, Value
from tileyard.report.console import Console
from tileyard.report.progress import Progress
from tileyard.report.study import print_study
from tileyard.service.client import AnswerQuestion, StudyClient
from tileyard.service.messages import StartTune
from tileyard.settings import Settings
from tileyard.tuning.request import DEFAULT_TRIALS, StudyResult, TuneRequest
from tileyard.workers.author import Author

Arguments = Mapping[str, Value]


def tune(  # noqa: PLR0913 - options, by keyword only
    kernel: object,
    *,
    arguments: Arguments | None = None,
    shape: str = "",
    config: Mapping[str, Sequence[Value]] | None = None,
    space: object = None,
    where: Callable[..., object] | None = None,
    reference: Callable[..., object] | None = None,
    inputs: Callable[..., object] | None = None,
    check: bool = True,
    target: str = "cpu",
    devices: str | Sequence[str] = (),
    trials: int = DEFAULT_TRIALS,
    budget_s: float | None = None,
    fresh: bool = False,
    limits: Limits | None = None,
    home: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Study:
    """Find the fastest config of a kernel: build, check and time every one, then let the best meet.

    Works from scripts, threads and notebooks: the kernel, its reference and ``where`` may be
    lambdas and closures, because they are called in this process; everything else happens in
    processes of their own.

    Args:
        kernel: A function decorated with ``tileyard.kernel``, ``tilelang.jit`` or
            ``tilelang.autotune``; a function that returns a PrimFunc; or ``"file.py::name"``.
        arguments: Values of the kernel's parameters that are not searched.
        shape: A named set of arguments that the kernel declares.
        config: Values to try for single parameters, in place of the kernel's own.
        space: The configs to search, ``where`` which of them to use, ``reference`` what results
            are checked against, and ``inputs`` what they are run on: as in ``tileyard.kernel``,
            for a kernel that does not declare them. The reference is a NumPy or torch function
            that gets the inputs in parameter order and returns the outputs or writes them in
            place.
        where: See ``space``.
        reference: See ``space``.
        inputs: See ``space``.
        check: Whether results are compared with the reference.
        target: What to compile for.
        devices: What to run on: ``cpu``, ``cpu:cores=0-3`` for some of the cores, or several
            names; by default all devices of the target's class.
        trials: How many configs to try at most.
        budget_s: Seconds after which no new config is started.
        fresh: Measure again what earlier runs have measured.
        limits: Time limits in seconds and the memory of a run in bytes.
        home: Where results are kept; by default ``$TILEYARD_HOME``, else ``.tileyard`` beside the
            nearest ``pyproject.toml``, else in the working directory.
        progress: Show progress and the table of results; by default where stderr is a terminal.

    Returns:
        The study; ``study.best.config`` is the winner, ``study.best.load()`` its callable.

    Raises:
        TileyardError: What is asked for does not exist, or cannot be done here.
    """
    settings = settings_for(home)
    file, name, answer = "", "", None
    if isinstance(kernel, str):
        file, _, name = kernel.partition("::")
    else:
        declared = {"space": space, "where": where, "reference": reference, "inputs": inputs}
        given = {key: value for key, value in declared.items() if value is not None}
        name, answer = _author(kernel, given, settings)
    request = TuneRequest(
        kernel=name,
        arguments=dict(arguments or {}),
        shape=shape,
        overrides={key: tuple(values) for key, values in (config or {}).items()},
        trials=trials,
        budget_s=budget_s,
        check=CheckPolicy(enabled=check),
        limits=limits or Limits(),
    )
    start = StartTune(
        request=request,
        target=target,
        devices=(devices,) if isinstance(devices, str) else tuple(devices),
        file=str(Path(file).absolute()) if file else "",
        reuse=not fresh,
    )
    client = StudyClient(start, settings, answer)
    shown = sys.stderr.isatty() if progress is None else progress
    return Study(_run(client, settings, shown=shown), settings)


def _author(
    kernel: object, given: dict[str, object], settings: Settings
) -> tuple[str, AnswerQuestion]:
    """The kernel's name, and what answers for it in this process."""
    if not callable(kernel):
        raise UsageError(f"{kernel!r} is no kernel", "decorate a function with @tileyard.kernel")
    declared: Callable[..., object] = kernel
    if read_recipe(kernel) is None:
        declared = declare_kernel(**given)(kernel)  # type: ignore[call-overload]  # checked there
    elif given:
        raise UsageError(
            f"{getattr(kernel, '__name__', kernel)} is declared already, so {', '.join(given)} "
            "can't be given here",
            "declare them where the kernel is, or pass the undecorated function",
        )
    author = Author.of_kernel(declared, ObjectStore(settings.home / "objects"))
    return next(iter(author.kernels)), author.answer


def _run(client: StudyClient, settings: Settings, *, shown: bool) -> StudyResult:
    if not shown:
        return client.run(_ignore)
    console = Console(stderr=True)
    with Progress(console) as progress:
        result = client.run(progress)
    print_study(console, result, settings.home)
    return result


def _ignore(_event: Event) -> None:
    """Nobody watches."""
