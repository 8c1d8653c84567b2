"""Compiled kernels as functions on arrays: ``compile`` and ``load``."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tileyard.artifacts.keys import build_key
from tileyard.artifacts.manifest import Artifact, Build, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.devices.registry import parse_device
from tileyard.errors import DamagedError, ToolMissingError, UnsupportedError, UsageError
from tileyard.frontend.tilelang import make_kernel
from tileyard.model import Elaborated, SourceLine, Trial
from tileyard.service.choosing import require_fit
from tileyard.settings import Settings, read_settings
from tileyard.store.trials import open_store
from tileyard.targets.base import KnowsLines
from tileyard.targets.registry import find_needs, make_target
from tileyard.wording import show_value
from tileyard.workers.compiler import Compiler
from tileyard.workers.protocol import BuildKernel, DescribeTarget
from tileyard.workers.run_records import find_run


def compile(  # noqa: A001 - the field's own word, always used as tileyard.compile
    prim_func: object,
    *,
    target: str = "cpu",
    out_idx: Sequence[int] | None = None,
    device: str = "",
    home: str | os.PathLike[str] | None = None,
) -> Callable[..., object]:
    """Compile one TileLang ``PrimFunc`` and return it as a function on arrays.

    Args:
        prim_func: What a ``@T.prim_func`` gives, or ``jit_function.get_tir(...)``.
        target: What to compile for.
        out_idx: Positions of the parameters that are outputs; by default those that are only
            written.
        device: What to run on, as in ``tune``; by default the CPU, or the first GPU where the target
            is ``cuda``.
        home: Where artifacts are kept, as in ``tune``.

    Returns:
        A function of the tensors in parameter order: NumPy arrays or torch CPU tensors, or arrays
        on the GPU; see ``Winner.load``.

    Raises:
        UnsupportedError: The kernel uses an operation that is not covered; it names the line.
        UsageError: There is no C compiler, or no GPU's driver; or ``prim_func`` is none.
    """
    if type(prim_func).__name__ != "PrimFunc":
        hint = "tileyard.tune takes functions that make one; jit_function.get_tir(...) gives one"
        raise UsageError(f"{show_value(prim_func)} is no PrimFunc", hint)
    settings = settings_for(home)
    compiler = Compiler(settings.make_home())
    request = DescribeTarget(target=target, plugins=settings.plugins)
    try:
        info = request.check(compiler.answer(request))
    except ToolMissingError as error:
        raise UsageError(error.message, error.hint) from None
    made = make_kernel(prim_func, out_idx, with_tir=info.needs_tir)
    kernel = made.kernel
    key = build_key(kernel, target, info.fingerprint, {})
    objects = ObjectStore(settings.home / "objects")
    artifact = find_artifact(key, objects)
    if artifact is None:
        elaborated = Elaborated(kernel=kernel, tir=made.tir, lines=made.lines)
        wanted = BuildKernel(case=kernel.name, build=key, elaborated=elaborated, options={})
        built = compiler.build_alone(wanted)
        if isinstance(built, Build):
            raise UnsupportedError(
                built.message or f"{kernel.name} could not be built for {target}"
            )
        artifact = built
    return make_callable(artifact, target, settings, device, made.lines)


def load(
    trial: str, *, device: str = "", home: str | os.PathLike[str] | None = None
) -> Callable[..., object]:
    """The kernel of a recorded trial as a function on arrays; ``trial`` is its id.

    Raises UsageError if there is no such trial, DamagedError if its artifact is gone.
    """
    settings = settings_for(home)
    with open_store(settings.make_home()) as store:
        found = store.get_trial(trial)
    return load_trial(found, settings, device)


def settings_for(home: str | os.PathLike[str] | None) -> Settings:
    """Settings from the environment, with ``home`` in place of its own where it is given."""
    named = {} if home is None else {"TILEYARD_HOME": str(Path(home).absolute())}
    return read_settings({**os.environ, **named}, Path.cwd())


def load_trial(trial: Trial, settings: Settings, device: str) -> Callable[..., object]:
    """The kernel of a trial as a function. Raises DamagedError if its artifact is gone."""
    artifact = find_artifact(trial.keys.build, ObjectStore(settings.home / "objects"))
    if artifact is None:
        raise DamagedError(
            f"the artifact of trial {trial.id} is gone or damaged", "tune again to build it"
        )
    record = find_run(ObjectStore(settings.home / "objects"), trial.keys.run)
    lines = record.entry.lines if record is not None else {}
    return make_callable(artifact, trial.target, settings, device, lines)


def make_callable(
    artifact: Artifact,
    target: str,
    settings: Settings,
    device: str,
    lines: Mapping[int, SourceLine],
) -> Callable[..., object]:
    """An artifact as a function on arrays, loaded on the device of this name, or the first one of its class."""
    name = device or f"{find_needs(target).device_class}:0"
    on = parse_device(name, settings)
    require_fit(target, on)
    loaded = make_target(target, settings.plugins).load(artifact, on)
    if isinstance(loaded, KnowsLines):
        loaded.know_lines(lines)
    return loaded.as_callable()
