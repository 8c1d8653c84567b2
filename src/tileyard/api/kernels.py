"""Compiled kernels as functions on arrays."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Unpack, overload

from tileyard.api.running import (
    carry_on,
    console_for,
    find_kernel,
    printed_on,
    settings_for,
    show,
)
from tileyard.api.shown import ShownBuilds, make_shown
from tileyard.artifacts.manifest import Artifact, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError, ToolMissingError, UsageError
from tileyard.base.model import SourceLine, Trial, Value
from tileyard.base.settings import Settings
from tileyard.devices.registry import parse_device
from tileyard.service.choosing import require_fit, settle_target
from tileyard.show.options import complete, takes
from tileyard.show.values import refuse_unused
from tileyard.show.words import format_config
from tileyard.targets.arguments import guard
from tileyard.targets.base import KnowsLines
from tileyard.targets.registry import find_needs, make_target
from tileyard.verbs.compile.options.compile import CompileOptions, start_compile
from tileyard.verbs.tune.result.records import CompileResult
from tileyard.verbs.tune.view.compiled import print_compiled
from tileyard.verbs.tune.view.progress import StudyLayout
from tileyard.workers.local_builder import LocalBuilder
from tileyard.workers.run_records import find_run

OF_FUNCTIONS = ("target", "out_idx", "device", "home")
"""The options that apply to a PrimFunc."""


class PrimFunc(Protocol):
    """TVM's PrimFunc, which is untyped, so that TileLang need not be imported."""

    buffer_map: Any


class LoadedKernel:
    """A compiled kernel as a function on arrays, see ``Winner.load``, with its identity."""

    __slots__ = ("_run", "arguments", "config", "name", "target")

    def __init__(
        self,
        run: Callable[..., object],
        name: str,
        target: str,
        arguments: Mapping[str, Value] | None = None,
        config: Mapping[str, Value] | None = None,
    ) -> None:
        self._run = run
        self.name = name
        self.target = target
        self.arguments = dict(arguments or {})
        self.config = dict(config or {})

    def __call__(self, *arguments: object) -> object:
        """Launch the kernel."""
        return self._run(*arguments)

    def __repr__(self) -> str:
        words = (self.name, format_config(self.arguments), format_config(self.config))
        return f"<kernel {' '.join(filter(None, words))}, target {self.target}>"


@overload
def compile(  # noqa: A001 - see below
    kernel: str | Callable[..., object], **options: Unpack[CompileOptions]
) -> CompileResult: ...


@overload
def compile(  # noqa: A001 - see below
    kernel: PrimFunc, **options: Unpack[CompileOptions]
) -> LoadedKernel: ...


@takes(CompileOptions)
def compile(  # noqa: A001 - the field's own word, always used as tileyard.compile
    kernel: object, **options: Unpack[CompileOptions]
) -> LoadedKernel | CompileResult:
    """Build the configs of a kernel without running them; or make one TileLang ``PrimFunc`` a
    function on arrays.

    A kernel is given as in ``tileyard.tune``; the result has the outcome of each config's build.

    A PrimFunc comes from ``@T.prim_func`` or ``jit_function.get_tir(...)``. It becomes a function
    of the tensors in parameter order: NumPy arrays or torch CPU tensors, or arrays on the GPU; see
    ``Winner.load``. Only the options target, out_idx, device and home apply to it.

    Raises UnsupportedError, which names the line, for an operation that is not covered, and
    UsageError if there is no C compiler or no GPU driver, or for anything that is not a kernel.
    """
    given = complete(CompileOptions, options)
    settings = settings_for(given["home"])
    if type(kernel).__name__ == "PrimFunc":
        unused = [name for name in options if name not in OF_FUNCTIONS]
        refuse_unused("on a PrimFunc", dict.fromkeys(unused, True))
        return _compile_function(kernel, given, settings)
    reference = given["reference"]
    start = start_compile(
        "", "", given
    )  # before a file is imported: bad options are refused at once
    declared = {"reference": None if isinstance(reference, str) else reference}
    found = find_kernel(kernel, declared, settings)
    console = console_for(given["progress"])
    result = carry_on(console, found.answer)(
        found.place(start), settings, StudyLayout(tells_ends=False)
    )
    show(printed_on(console), print_compiled, result, settings.home, with_report=False)
    return make_shown(ShownBuilds, result)


def _compile_function(
    prim_func: object, options: CompileOptions, settings: Settings
) -> LoadedKernel:
    # A kernel that is already built needs no TileLang.
    from tileyard.frontend.bounds import require_inside
    from tileyard.frontend.tilelang import make_kernel

    device = options["device"]
    target = settle_target(options["target"], (device,) if device else (), settings)
    builder = make_builder(target, settings)
    require_inside(prim_func, {}, is_unguarded=builder.needs_tir)
    made = make_kernel(prim_func, options["out_idx"], with_tir=builder.needs_tir)
    artifact, _ = builder.build(made)
    run = make_callable(artifact, target, settings, device, made.lines)
    return LoadedKernel(run, artifact.manifest.kernel, target)


def make_builder(target: str, settings: Settings) -> LocalBuilder:
    """The builder for a target in this process. Raises UsageError if its tools are missing."""
    try:
        return LocalBuilder(target, settings)
    except ToolMissingError as error:
        raise UsageError(error.message, error.hint) from None


def find_built(trial: Trial, settings: Settings) -> Artifact:
    """The artifact that a trial ran. Raises DamagedError if it is gone."""
    artifact = find_artifact(trial.keys.build, ObjectStore(settings.home / "objects"))
    if artifact is None:
        raise DamagedError(
            f"the artifact of trial {trial.id} is gone or damaged in {settings.home}",
            "tune again to build it; `tileyard export --binaries` packs it where it was tuned",
        )
    return artifact


def load_trial(trial: Trial, settings: Settings, device: str) -> LoadedKernel:
    """The kernel of a trial as a function. Raises DamagedError if its artifact is gone."""
    artifact = find_built(trial, settings)
    record = find_run(ObjectStore(settings.home / "objects"), trial.keys.run)
    lines, rule = (record.entry.lines, record.entry.rule) if record is not None else ({}, None)
    run = guard(make_callable(artifact, trial.target, settings, device, lines), rule)
    return LoadedKernel(run, trial.kernel, trial.target, trial.arguments, trial.config)


def make_callable(
    artifact: Artifact,
    target: str,
    settings: Settings,
    device: str,
    lines: Mapping[int, SourceLine],
) -> Callable[..., object]:
    """An artifact as a function on arrays, loaded on the device of this name, or the first of its class."""
    name = device or f"{find_needs(target).device_class}:0"
    on = parse_device(name, settings)
    require_fit(target, on)
    loaded = make_target(target, settings.plugins).load(artifact, on)
    if isinstance(loaded, KnowsLines):
        loaded.know_lines(lines)
    return loaded.as_callable()
