"""TileLang's tuner with its arguments, chained calls and results, carried out by Tileyard.
``tileyard.autotune``, ``AutoTuner`` and ``set_autotune_inputs`` replace those of ``tilelang``.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import tilelang
from tilelang import env
from tilelang.autotuner import set_autotune_inputs
from tilelang.autotuner.capture import get_autotune_inputs
from tilelang.autotuner.tuner import AutoTuneImpl
from tilelang.autotuner.tuner import AutoTuner as TileLangTuner
from tilelang.backend.target import determine_target
from tilelang.jit import JITKernel

from tileyard.api.chain_study import Manner, run_study
from tileyard.api.kernels import (
    console_for,
    find_built,
    load_trial,
    make_builder,
    make_callable,
    settings_for,
    show,
)
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import QUEUE_LIMIT_S, Kernel, TimingPolicy, Trial
from tileyard.base.settings import Settings
from tileyard.devices.holding import HeldLease
from tileyard.devices.registry import AUTO, parse_device, resolve_devices
from tileyard.frontend.chains import ChainError, describe_params, find_outputs, make_alone
from tileyard.frontend.no_device import ASSUMED_TARGET, TARGET_VARIABLE, assume_target
from tileyard.frontend.tir_queries import is_cpu
from tileyard.service.choosing import require_fit, settle_target
from tileyard.targets.registry import BUILT_IN, find_needs
from tileyard.verbs.exec.plan.grounds import Ground, Studied, StudyOrder
from tileyard.verbs.exec.plan.tilelang_jit import Adapter
from tileyard.verbs.exec.plan.tilelang_tuning import INPUTS, script_ground, tune_chain
from tileyard.verbs.tune.view.study import print_reference
from tileyard.workers.local_builder import NUMBER_VARIABLE as LEASE_VARIABLE
from tileyard.workers.protocol import AuthorReply, AuthorRequest

__all__ = ["AutoTuner", "autotune", "set_autotune_inputs"]

CPU = "cpu"
TIMERS = ("event", "cudagraph", "wall")
"""TileLang's timing backends here: launch by launch, captured, and with a clock, a CPU's only one."""


class AutoTuner(TileLangTuner):  # type: ignore[misc]  # TileLang is not typed
    """As ``tilelang.autotuner.AutoTuner``:
    ``from_kernel(..).set_compile_args(..).set_profile_args(..).run(..)``.

    Without a target, kernels are built for the GPU if there is one, otherwise for the CPU. ``run`` uses all
    visible devices unless ``benchmark_devices`` or ``benchmark_multi_gpu=False`` says otherwise;
    ``benchmark_devices`` may also be names of devices. ``warmup`` and ``rep`` are numbers of launches;
    without both, times are taken until they are known well enough. The result is TileLang's AutotuneResult:
    ``config``, ``latency`` and ``ref_latency`` in milliseconds, ``libcode``, ``func``, ``kernel``.
    """

    _ground: Ground | None = None

    def set_compile_args(
        self, out_idx: object = None, target: object = None, *args: object, **kwargs: object
    ) -> "AutoTuner":
        """As TileLang's. Raises UsageError for a target that cannot be run here."""
        self._ground, target = _choose_ground(target)
        super().set_compile_args(out_idx, target, *args, **kwargs)
        return self

    def set_profile_args(self, *args: object, **kwargs: object) -> "AutoTuner":
        """As TileLang's. Inputs of ``set_autotune_inputs`` are checked against the kernel's parameters."""
        setattr(self, INPUTS, get_autotune_inputs())
        super().set_profile_args(*args, **kwargs)
        return self

    def run(self, *args: object, **kwargs: object) -> object:
        """As TileLang's. Raises ChainError (a ValueError) for invalid arguments, and RuntimeError
        if no config passed.
        """
        if self._ground is None:
            self.set_compile_args()
        with assume_target():
            result: Any = tune_chain(self._ground, self, *args, **kwargs)  # type: ignore[arg-type]
        if result.latency and result.ref_latency:
            show(console_for(None), print_reference, result.latency, result.ref_latency)
        return result


class TunedFunction(AutoTuneImpl):  # type: ignore[misc]  # TileLang is not typed
    """A function decorated with ``tilelang.jit`` and ``autotune``."""

    def get_tunner(self) -> AutoTuner:
        """Make the tuner; the name is TileLang's own."""
        with assume_target():
            made = super().get_tunner()
        tuner = AutoTuner(made.fn, made.configs)
        options = made.__dict__.pop("run")
        tuner.__dict__.update(made.__dict__, compile_flags=self.jit_impl.compile_flags)
        setattr(tuner, INPUTS, get_autotune_inputs())
        tuner._ground, target = _choose_ground(self.jit_impl.target)  # noqa: SLF001 (of this module)
        tuner.compile_args = replace(made.compile_args, target=target)
        tuner.run = partial(tuner.run, *options.args, **options.keywords)  # type: ignore[method-assign]
        return tuner

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Tune for these arguments unless done before; returns the kernel, or eager outputs."""
        with assume_target():
            return super().__call__(*args, **kwargs)


def autotune(*args: object, **kwargs: object) -> Callable[[Any], TunedFunction]:
    """As ``tilelang.autotune``, with its arguments: decorates a function decorated with ``tilelang.jit``."""
    decorate = tilelang.autotune(*args, **kwargs)

    def make(function: Any) -> TunedFunction:  # noqa: ANN401 (TileLang's)
        made = decorate(function)
        made.__class__ = TunedFunction
        tuned: TunedFunction = made
        return tuned

    return make


# ---- where it is built and run --------------------------------------------------------------------


class DeviceGround:
    """The devices that a target runs on: see ``tilelang_tuning.Ground``."""

    def __init__(self, settings: Settings, target: str) -> None:
        self.objects = ObjectStore(settings.home / "objects")
        self._settings = settings
        self._target = target
        self._class = find_needs(target).device_class

    def study(self, order: StudyOrder, answer: Callable[[AuthorRequest], AuthorReply]) -> Studied:
        """See ``Ground``."""
        return run_study(self._settings, order, answer, Manner(target=self._target))

    def rework(self, kernel: Kernel) -> Kernel:
        """See ``Ground``."""
        return kernel

    def timing(self, asked: TimingPolicy | None, backend: str) -> TimingPolicy | None:
        """See ``Ground``."""
        is_timed_by_policy = find_needs(self._target).is_timed_by_policy
        if backend not in TIMERS or (backend == "cudagraph" and not is_timed_by_policy):
            known = TIMERS if is_timed_by_policy else ("event", "wall")
            raise ChainError(
                f"backend={backend!r} cannot time kernels for {self._target}",
                f"choose one of {', '.join(known)}",
            )
        if backend == "cudagraph":
            return msgspec.structs.replace(asked or TimingPolicy(), graph=True)
        return asked

    def name_devices(
        self, numbers: Sequence[int | str] | None, *, are_several: bool | None
    ) -> tuple[str, ...]:
        """See ``Ground``."""
        named = [f"{self._class}:{one}" if isinstance(one, int) else one for one in numbers or ()]
        try:
            for name in named:
                require_fit(self._target, parse_device(name, self._settings))
        except UsageError as error:
            raise ChainError(f"benchmark_devices: {error.message}", error.hint) from None
        if not named and are_several is False:
            named = [resolve_devices(self._class, self._settings)[0].name]
        return tuple(dict.fromkeys(named))

    def compile(
        self,
        tuner: Any,  # noqa: ANN401 (TileLang's)
        func: Any,  # noqa: ANN401 (TVM's)
        config: Mapping[str, object],
        trial: Trial | None,
    ) -> object:
        """See ``Ground``."""
        if trial is None:
            builder = make_builder(self._target, self._settings)
            made = make_alone(tuner, func, config, with_tir=builder.needs_tir)
            artifact, _ = builder.build(made)
            run = make_callable(artifact, self._target, self._settings, "", made.lines)
        else:
            artifact = find_built(trial, self._settings)
            run = load_trial(trial, self._settings, trial.device)
        texts = map(artifact.file, find_needs(self._target).emits.values())
        source = next((file.read_text(encoding="utf-8") for file in texts if file.exists()), "")
        returned = find_outputs(func, tuner.compile_args.out_idx) or []
        work = artifact.manifest.binary or id(run)
        adapter = Adapter(describe_params(func), returned, run, source, work)
        return TunedKernel(func, adapter, tuner.compile_args.target)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """See ``Ground``. A caller that already holds a device keeps it."""
        if LEASE_VARIABLE in os.environ:
            yield
            return
        held = HeldLease(resolve_devices(self._class, self._settings), QUEUE_LIMIT_S)
        try:
            yield
        finally:
            held.release()


class TunedKernel(JITKernel):  # type: ignore[misc]  # TileLang is not typed
    """A kernel with the interface of TileLang's: with a profiler, its source, and its tuning results."""

    def __init__(self, func: Any, adapter: Adapter, target: Any) -> None:  # noqa: ANN401 (TVM's)
        # TileLang's own __init__ would compile.
        self.prim_func = func
        self.adapter = adapter
        self.torch_function = adapter.func
        self.target = target
        self.execution_backend = "tileyard"
        self.verbose = False

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The generated source."""
        return self.adapter.get_kernel_source(kernel_only)

    def get_host_source(self) -> str:
        """Empty: kernels are launched directly, without host code."""
        return self.adapter.get_host_source()


def _choose_ground(asked: Any) -> tuple[Ground, object]:  # noqa: ANN401 (TileLang's)
    """The ground where kernels for a TileLang target are built and run, and its target. Raises UsageError."""
    if (script := script_ground()) is not None:
        return script, determine_target(asked or env.get_default_target(), return_object=True)
    settings = settings_for(None)
    default = os.environ.get(TARGET_VARIABLE) or AUTO
    named: Any = asked if asked is not None else AUTO if default == ASSUMED_TARGET else default
    if named == AUTO:
        found = resolve_devices(AUTO, settings)
        gpu = next((device for device in found if device.kind in BUILT_IN and device.arch), None)
        if gpu is None:
            return DeviceGround(settings, CPU), determine_target(ASSUMED_TARGET, return_object=True)
        own = determine_target(AUTO, return_object=True)
        return DeviceGround(settings, settle_target(gpu.kind, (gpu.name,), settings)), own
    own = determine_target(named, return_object=True)
    if is_cpu(own):
        return DeviceGround(settings, CPU), own
    kind = str(own.kind.name)
    if kind not in BUILT_IN:
        raise UsageError(f"there is no way to build for {kind}", "targets are cuda, c and llvm")
    try:
        first = resolve_devices(find_needs(kind).device_class, settings)[0]
    except UsageError as error:
        hint = "leave the target out to tune on this CPU, or run the script with `tileyard exec`"
        raise UsageError(f"target={kind}: {error.message}", hint) from None
    if named == kind and first.arch:
        arch = settle_target(kind, (first.name,), settings).partition(":")[2]
        own = determine_target({"kind": kind, "arch": arch}, return_object=True)
    return DeviceGround(settings, f"{kind}:{own.attrs['arch']}"), own
