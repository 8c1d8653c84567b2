"""What ``import tileyard`` gives: thin calls into the rooms below."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from tileyard.artifacts.keys import build_key
from tileyard.artifacts.manifest import Artifact, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.devices.registry import parse_device
from tileyard.errors import DamagedError, NoWinnerError, UnsupportedError, UsageError
from tileyard.frontend.declare import kernel as declare_kernel
from tileyard.frontend.recipes import read_recipe
from tileyard.frontend.tilelang import lower_prim_func
from tileyard.ir.text import print_program
from tileyard.model import CheckPolicy, Elaborated, Event, Kernel, Limits, Outcome, Trial, Value
from tileyard.report.progress import Progress
from tileyard.report.study import print_study, render_study
from tileyard.service.client import AnswerQuestion, StudyClient
from tileyard.service.messages import StartTune
from tileyard.settings import Settings, read_settings
from tileyard.store.trials import TrialStore
from tileyard.targets.registry import make_target
from tileyard.tuning.request import DEFAULT_TRIALS, Final, StudyResult, TuneRequest
from tileyard.workers.author import Author
from tileyard.workers.compiler import Compiler
from tileyard.workers.protocol import BuildKernel, BuildRefused, Built, DescribeTarget, TargetInfo

Arguments = Mapping[str, Value]


class Winner:
    """The best config of a study.

    ``config`` is the config, ``trial`` its record in the store, ``latency_ns`` its median time per
    launch in nanoseconds when it was screened.
    """

    def __init__(self, trial: Trial, settings: Settings, device: str) -> None:
        self.config: dict[str, Value] = dict(trial.config)
        self.trial = trial
        self.latency_ns = trial.measurement.median_ns if trial.measurement is not None else 0.0
        self._settings = settings
        self._device = device

    def load(self) -> Callable[..., object]:
        """The compiled kernel as a function.

        It takes the kernel's tensors in parameter order as NumPy arrays or torch CPU tensors of
        the shapes and dtypes it was tuned for, and its scalars. Given the inputs alone it returns
        the outputs, one or a tuple, as the kind of array it was given; given all tensors it writes
        the outputs in place. Raises BindError where an array does not fit.
        """
        return _load(self.trial, self._settings, self._device)

    def __repr__(self) -> str:
        return f"<best config {self.config} of {self.trial.kernel}: {self.latency_ns / 1e6:.4g} ms>"


class Study:
    """What a tuning run came to.

    ``result`` is the whole record; ``trials`` are the screened configs in the order in which they
    ended; ``finals`` say how the best ones did when they were timed in turn, the winner first.
    """

    def __init__(self, result: StudyResult, settings: Settings) -> None:
        self.result = result
        self._settings = settings

    @property
    def best(self) -> Winner:
        """The winner. Raises NoWinnerError, counting the outcomes, where no config passed."""
        if self.result.best is None:
            ended = ", ".join(
                f"{self.result.count(outcome)} {outcome}"
                for outcome in Outcome
                if self.result.count(outcome)
            )
            raise NoWinnerError(f"no config of {self.result.kernel} passed: {ended}")
        return Winner(self.result.best, self._settings, self.result.device)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """One trial per config."""
        return self.result.trials

    @property
    def finals(self) -> tuple[Final, ...]:
        """The finalists, the winner first; empty where no other config came near it."""
        return self.result.finals

    @property
    def ties(self) -> list[dict[str, Value]]:
        """Configs that can't be told from the winner."""
        return [final.config for final in self.result.finals[1:] if final.tied]

    def __repr__(self) -> str:
        return f"<study {self.result.run} of {self.result.kernel}: {len(self.trials)} configs>"

    def _repr_html_(self) -> str:
        """The table of results, for notebooks."""
        return render_study(self.result, self._settings.home)


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
    device: str = "cpu",
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
        device: What to run on: ``cpu``, or ``cpu:cores=0-3`` for some of the cores.
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
    settings = _settings(home)
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
        device=device,
        file=str(Path(file).absolute()) if file else "",
        reuse=not fresh,
    )
    client = StudyClient(start, settings, answer)
    shown = sys.stderr.isatty() if progress is None else progress
    return Study(_run(client, settings, shown=shown), settings)


def compile(  # noqa: A001 - the field's own word, always used as tileyard.compile
    prim_func: object,
    *,
    target: str = "cpu",
    out_idx: Sequence[int] | None = None,
    device: str = "cpu",
    home: str | os.PathLike[str] | None = None,
) -> Callable[..., object]:
    """Compile one TileLang ``PrimFunc`` and return it as a function on arrays.

    Args:
        prim_func: What a ``@T.prim_func`` gives, or ``jit_function.get_tir(...)``.
        target: What to compile for.
        out_idx: Positions of the parameters that are outputs; by default those that are only
            written.
        device: What to run on, as in ``tune``.
        home: Where artifacts are kept, as in ``tune``.

    Returns:
        A function of the tensors in parameter order, NumPy arrays or torch CPU tensors; see
        ``Winner.load``.

    Raises:
        UnsupportedError: The kernel uses an operation that is not covered; it names the line.
        ToolMissingError: There is no C compiler.
    """
    settings = _settings(home)
    lowered = lower_prim_func(prim_func, out_idx)
    kernel = Kernel(name=lowered.program.name, program=print_program(lowered.program))
    compiler = Compiler(settings.home)
    info = compiler.answer(DescribeTarget(target=target, plugins=settings.plugins))
    if isinstance(info, BuildRefused):
        raise UsageError(info.message, info.hint)
    if not isinstance(info, TargetInfo):
        raise AssertionError(f"a compiler described its target with {info}")
    key = build_key(kernel, target, info.fingerprint, {})
    objects = ObjectStore(settings.home / "objects")
    artifact = find_artifact(key, objects)
    if artifact is None:
        elaborated = Elaborated(kernel=kernel, lines=lowered.lines)
        built = compiler.answer(
            BuildKernel(case=kernel.name, build=key, elaborated=elaborated, options={})
        )
        if not isinstance(built, Built) or built.outcome is not Outcome.PASSED:
            message = built.message if isinstance(built, Built) else str(built)
            raise UnsupportedError(message or f"{kernel.name} could not be built for {target}")
        artifact = find_artifact(key, objects)
    if artifact is None:
        raise DamagedError(f"the artifact of {kernel.name} is gone right after it was built")
    return _callable(artifact, target, settings, device)


def load(
    trial: str, *, device: str = "cpu", home: str | os.PathLike[str] | None = None
) -> Callable[..., object]:
    """The kernel of a recorded trial as a function on arrays; ``trial`` is its id.

    Raises UsageError if there is no such trial, DamagedError if its artifact is gone.
    """
    settings = _settings(home)
    with TrialStore.open(settings.home) as store:
        found = store.get_trial(trial)
    return _load(found, settings, device)


def _settings(home: str | os.PathLike[str] | None) -> Settings:
    settings = read_settings(os.environ, Path.cwd())
    if home is None:
        return settings
    return msgspec.structs.replace(settings, home=Path(home).absolute())


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


def _load(trial: Trial, settings: Settings, device: str) -> Callable[..., object]:
    artifact = find_artifact(trial.keys.build, ObjectStore(settings.home / "objects"))
    if artifact is None:
        raise DamagedError(
            f"the artifact of trial {trial.id} is gone or damaged", "tune again to build it"
        )
    return _callable(artifact, trial.target, settings, device)


def _callable(
    artifact: Artifact, target: str, settings: Settings, device: str
) -> Callable[..., object]:
    loaded = make_target(target, settings.plugins).load(artifact, parse_device(device, settings))
    return loaded.as_callable()
