"""``tune``: a tuning run from Python."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tileyard.api.kernels import settings_for
from tileyard.api.study import Study
from tileyard.artifacts.objects import ObjectStore
from tileyard.errors import UsageError
from tileyard.events import Event
from tileyard.frontend.declare import kernel as declare_kernel
from tileyard.frontend.discover import find_kernels, import_file
from tileyard.frontend.parameters import to_plain
from tileyard.model import CheckPolicy, Limits, Value
from tileyard.report.console import Console
from tileyard.report.progress import Progress
from tileyard.report.study import print_study
from tileyard.service.client import RunClient
from tileyard.service.verbs import StartTune
from tileyard.settings import Settings
from tileyard.tuning.request import DEFAULT_TRIALS, StudyResult, TuneRequest
from tileyard.tuning.space import choose_kernel
from tileyard.wording import show_value
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
    require_check: bool = False,
    check_sync: bool | None = None,
    target: str = "cpu",
    also_build: str | Sequence[str] = (),
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
            in place of the kernel's own. The reference is a NumPy or torch function that gets the
            inputs in parameter order and returns the outputs or writes them in place. The file of
            ``"file.py::name"`` is imported in this process where one of these is given.
        where: See ``space``.
        reference: See ``space``.
        inputs: See ``space``.
        check: Whether results are compared with the reference.
        require_check: Whether a config wins only if its results were compared: then there is no
            best one without a reference.
        check_sync: Whether a config fails whose synchronization has mistakes; by default where finding
            them takes under a second.
        target: What to compile for.
        also_build: Further targets, such as ``cuda:sm_90a``, for which the configs are built and not
            run; ``study.result.also_built`` has one result per target.
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
    if reference is not None and not check:
        raise UsageError("reference= has no effect with check=False", "leave one of them out")
    if require_check and not check:
        raise UsageError("require_check=True contradicts check=False", "leave one of them out")
    declared = {"space": space, "where": where, "reference": reference, "inputs": inputs}
    author, file = None, ""
    if isinstance(kernel, str) and all(value is None for value in declared.values()):
        file, _, name = kernel.partition("::")
    else:
        held = _import_kernel(kernel) if isinstance(kernel, str) else kernel
        author = _make_author(held, declared, settings)
        name = next(iter(author.kernels))
    request = TuneRequest(
        kernel=name,
        arguments={key: to_plain(value) for key, value in (arguments or {}).items()},
        shape=shape,
        overrides=_read_config(config or {}),
        trials=trials,
        budget_s=budget_s,
        check=CheckPolicy(enabled=check),
        require_check=require_check,
        limits=limits or Limits(),
    )
    start = StartTune(
        request=request,
        target=target,
        also_build=(also_build,) if isinstance(also_build, str) else tuple(also_build),
        devices=(devices,) if isinstance(devices, str) else tuple(devices),
        file=str(Path(file).absolute()) if file else "",
        reuse=not fresh,
        check_sync=check_sync,
    )
    client = RunClient(start, settings, None if author is None else author.answer)
    shown = sys.stderr.isatty() if progress is None else progress
    return Study(run_client(client, settings, shown=shown), settings)


def _import_kernel(named: str) -> object:
    """The kernel ``file.py::name``. Raises KernelFileError."""
    file, _, name = named.partition("::")
    module = import_file(Path(file))
    kernels = find_kernels(module)
    chosen = choose_kernel([found.describe() for found in kernels.values()], name)
    return vars(module)[chosen.name]


def _make_author(kernel: object, declared: Mapping[str, object], settings: Settings) -> Author:
    """What answers in this process for a kernel with these fields in place of its own."""
    if not callable(kernel):
        is_func = type(kernel).__name__ == "PrimFunc"
        hint = "tileyard.compile takes one" if is_func else "@tileyard.kernel declares a function"
        raise UsageError(f"{show_value(kernel)} is no kernel", hint)
    held = declare_kernel(kernel, **declared)  # type: ignore[call-overload]  # checked there
    return Author.of_kernel(held, ObjectStore(settings.home / "objects"))


def _read_config(config: Mapping[str, Sequence[Value]]) -> dict[str, tuple[Value, ...]]:
    """Values to try by parameter, in plain form. Raises UsageError where they are no lists."""
    for key, values in config.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UsageError(f"config gives {key}={show_value(values)}, which is not a list")
    return {key: tuple(map(to_plain, values)) for key, values in config.items()}


def run_client(client: RunClient[StudyResult], settings: Settings, *, shown: bool) -> StudyResult:
    """Carry a study out, and show it on stderr if that is asked for."""
    if not shown:
        return client.run(_ignore)
    console = Console(stderr=True)
    with Progress(console) as progress:
        result = client.run(progress)
    print_study(console, result, settings.home)
    return result


def _ignore(_event: Event) -> None:
    """Nobody watches."""
