"""Carries out TileLang's tuner as a study: builds, times and remembers configs as ``tileyard tune`` does.
``frontend/chains.py`` knows what is tuned. If the caller itself holds every possible device, configs are
raced in this process.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import NoWinnerError
from tileyard.base.model import INFRASTRUCTURE, WELL, Kernel, Outcome, TimingPolicy, Trial
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.frontend.chains import Chain, ChainError, read_chain
from tileyard.frontend.recipes import DECORATOR_TIMEOUT_S, UNASKED, count_launches, read_tolerance
from tileyard.frontend.tir_queries import for_target
from tileyard.measure.compare import compare
from tileyard.measure.sampling import BestSoFar, CalledLaunch, measure
from tileyard.verbs.exec.plan.grounds import Ground, RunStudy, Studied, StudyOrder, as_cpu_work
from tileyard.verbs.exec.plan.tally import Refusal, Tally
from tileyard.verbs.exec.plan.tilelang_timing import time_call
from tileyard.workers.author import Author
from tileyard.workers.golden import to_numpy
from tileyard.workers.protocol import AuthorReply, AuthorRequest

RACE_MS = 100.0
"""Milliseconds for which a config is timed in a race, and a reference by default."""
INPUTS = "_tileyard_inputs"
"""The attribute of a tuner that contains the inputs that its caller has named."""
LEAST = {"warmup": 0, "rep": 1, "timeout": 0, "group_compile_size": 1}
"""The smallest valid number of each."""
PROFILE_TIMEOUT_S = 30
"""TileLang's default of ``set_profile_args``."""


class NothingWonError(NoWinnerError, RuntimeError, code="nothing_won"):
    """No config passed. TileLang raises RuntimeError there."""


@dataclass(frozen=True)
class RunOptions:
    """The arguments of ``AutoTuner.run`` in order, None if not requested. ``warmup`` and ``rep`` are numbers
    of launches, ``timeout`` is seconds.
    """

    warmup: int | None = None
    rep: int | None = None
    timeout: float | None = None
    use_pipeline: bool | None = None
    enable_grouped_compile: bool | None = None
    group_compile_size: int = 2
    benchmark_devices: Sequence[int | str] | None = None
    benchmark_multi_gpu: bool | None = None
    early_stop: bool = False
    early_stop_factor: float = 2.0

    @classmethod
    def read(cls, tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "RunOptions":  # noqa: ANN401
        """The options of a call; those it leaves out come from the profiling arguments. Raises ChainError."""
        try:
            asked = cls(*args, **kwargs)
        except TypeError as error:
            raise ChainError(
                str(error).replace("RunOptions.__init__()", "AutoTuner.run()")
            ) from None
        if tuner.jit_compile is not None:  # of a decorator, which passes all its arguments on
            asked = asked.leave_usual(DECORATOR_TIMEOUT_S)
        profile = tuner.profile_args
        own = cls(profile.warmup, profile.rep, profile.timeout).leave_usual(PROFILE_TIMEOUT_S)
        if asked.warmup is None and asked.rep is None:
            asked = replace(asked, warmup=own.warmup, rep=own.rep)
        if asked.timeout is None:
            asked = replace(asked, timeout=own.timeout)
        for name, least in LEAST.items():
            value = getattr(asked, name)
            if value is not None and not isinstance(value, int | float):
                raise ChainError(f"{name}={value!r} is not a number")
            if value is not None and value < least:
                raise ChainError(f"{name}={value} is below {least}")
        if asked.benchmark_multi_gpu is False and len(asked.benchmark_devices or ()) > 1:
            raise ChainError("benchmark_multi_gpu=False contradicts several benchmark_devices")
        if asked.early_stop and asked.early_stop_factor < 1:
            raise ChainError(f"early_stop_factor={asked.early_stop_factor} is below 1")
        return asked

    def leave_usual(self, timeout_s: float) -> "RunOptions":
        """These options without TileLang's defaults: a user who leaves a default requests nothing."""
        left = self
        if (self.warmup, self.rep) == (UNASKED["warmup"], UNASKED["rep"]):
            left = replace(left, warmup=None, rep=None)
        return replace(left, timeout=None) if self.timeout == timeout_s else left

    @property
    def timing(self) -> TimingPolicy | None:
        """How to time, None if not requested; if only one of the two is set, TileLang has the other."""
        if self.warmup is None and self.rep is None:
            return None
        warmup = UNASKED["warmup"] if self.warmup is None else self.warmup
        return count_launches(int(warmup), int(self.rep or UNASKED["rep"]))


def tune_chain(ground: Ground, tuner: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401
    """Do what ``AutoTuner.run`` does; returns an AutotuneResult with latencies in milliseconds. Raises
    ChainError for invalid arguments, NothingWonError if no config passed, TileyardError without a study.
    """
    asked = RunOptions.read(tuner, args, kwargs)
    chain = read_chain(tuner, getattr(tuner, INPUTS, None))
    if chain.is_decided:
        return _result(ground.compile(tuner, _elaborate(tuner, chain, {}), {}, None))
    timing = ground.timing(asked.timing, tuner.profile_args.backend)
    order = StudyOrder(
        kernel=chain.found.name,
        arguments=chain.arguments,
        configs=len(chain.configs),
        is_checked=chain.found.recipe.reference is not None,
        timing=timing,
        run_s=float(asked.timeout or 0),
        overlap=asked.use_pipeline is not False,
        group_size=asked.group_compile_size if asked.enable_grouped_compile else 0,
        devices=ground.name_devices(asked.benchmark_devices, are_several=asked.benchmark_multi_gpu),
    )
    author = Author({order.kernel: chain.found}, ground.objects, rework=ground.rework)
    studied = ground.study(order, author.answer)
    race = Race(ground, tuner, chain)
    if all(trial.outcome in INFRASTRUCTURE for trial in studied.trials):
        config, kernel, latency_ms = race.run()
    else:
        config, kernel, latency_ms = race.find_right(studied)
    return _result(kernel, config, latency_ms, race.time_reference(timing))


class Race:
    """The configs of one tuner in this process: all raced here, or those of a study built and checked."""

    def __init__(self, ground: Ground, tuner: Any, chain: Chain) -> None:  # noqa: ANN401 (TileLang's)
        self._ground = ground
        self._tuner = tuner
        self._chain = chain
        self._inputs: list[Any] | None = None

    def find_right(self, studied: Studied) -> tuple[dict[str, object], Any, float]:
        """The fastest config that the caller's own check accepts, its kernel, and its time in ms."""
        why = next((trial.message for trial in studied.trials if trial.message), "")
        time_ns = studied.latency_ns
        for trial in studied.trials:
            if trial.measurement is None or trial.outcome not in WELL:
                continue
            config = self._chain.original(trial.config)
            kernel = self._compile(config, trial)
            self.inputs(kernel)  # what makes them is not part of the check
            try:
                self._check(kernel)
            except Exception as error:  # noqa: BLE001 (the caller's check may raise anything)
                why, time_ns = str(error), 0.0
                continue
            return dict(config), kernel, (time_ns or trial.measurement.median_ns) / 1e6
        raise self._lose(why)

    def run(self) -> tuple[dict[str, object], Any, float]:
        """The fastest right config, its kernel, and its time in milliseconds."""
        best, times, failures = BestSoFar(), {}, []
        for config in self._chain.configs:
            try:
                kernel = self._compile(config)
                if kernel.adapter.work in times:
                    continue
                self._check(kernel, always=True)
                samples = time_call(partial(kernel, *self.inputs(kernel)), RACE_MS, best)
            except Exception as error:  # noqa: BLE001 (a kernel that fails cannot win)
                failures.append(str(error))
                continue
            times[kernel.adapter.work] = statistics.median(samples), dict(config), kernel
        if not times:
            raise self._lose(failures[0])
        time_ns, config, kernel = min(times.values(), key=lambda one: one[0])
        return config, kernel, time_ns / 1e6

    def time_reference(self, timing: TimingPolicy | None) -> float | None:
        """The time of the caller's reference in milliseconds; None if there is none."""
        reference = self._tuner.profile_args.ref_prog
        if reference is None or self._inputs is None:
            return None
        with self._ground.hold():
            call = partial(reference, *self._inputs)
            if timing is None:
                return statistics.median(time_call(call, RACE_MS)) / 1e6
            return measure(CalledLaunch(call), timing).median_ns / 1e6

    def inputs(self, kernel: Any) -> list[Any]:  # noqa: ANN401 (TileLang's)
        """The arguments of the kernels and the reference here."""
        if self._inputs is None:
            asked = self._tuner.profile_args
            profiler = kernel.get_profiler(tensor_supply_type=asked.supply_type)
            params = vars(type(profiler))["_get_params"](profiler, with_output=False)
            supply = asked.supply_prog or partial(map, profiler.supply)
            self._inputs = list(supply(params))
        return self._inputs

    def _compile(self, config: Mapping[str, object], trial: Trial | None = None) -> Any:  # noqa: ANN401
        func = _elaborate(self._tuner, self._chain, config)
        return self._ground.compile(self._tuner, func, config, trial)

    def _check(self, kernel: Any, *, always: bool = False) -> None:  # noqa: ANN401 (TileLang's)
        """Check one kernel if only the caller can, or ``always``."""
        asked = self._tuner.profile_args
        inputs = self.inputs(kernel)
        own = asked.manual_check_prog
        if asked.ref_prog is None or asked.skip_check or (own is None and not always):
            return
        wanted, got = _as_list(asked.ref_prog(*inputs)), _as_list(kernel(*inputs))
        if len(wanted) != len(got):
            raise ChainError(
                f"ref_prog gives {count_of(len(wanted), 'output')}, the kernel {len(got)}"
            )
        if own is not None:
            own(got, wanted)
            return
        tolerance = read_tolerance(asked)
        for number, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
            found = compare(f"output {number}", to_numpy(ours), to_numpy(theirs), tolerance)
            if found is not None:
                raise ChainError(
                    f"{found.output} is wrong in {found.wrong} of {found.total} elements"
                )

    def _lose(self, why: str) -> NothingWonError:
        name, count = self._chain.found.name, len(self._chain.configs)
        return NothingWonError(
            f"none of {count_of(count, 'config')} of {name} passed: {why}".removesuffix(": ")
        )


def _as_list(outputs: object) -> list[Any]:
    if outputs is None:
        return []
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def _elaborate(tuner: Any, chain: Chain, config: Mapping[str, object]) -> Any:  # noqa: ANN401 (TileLang's)
    """The PrimFunc of one config, with its name in the study."""
    func = for_target(chain.elaborate(config), tuner.compile_args.target)
    return func.with_attr("global_symbol", chain.found.name)


def _result(
    kernel: Any,  # noqa: ANN401 (TileLang's)
    config: dict[str, object] | None = None,
    latency_ms: float | None = None,
    reference_ms: float | None = None,
) -> object:
    result: Any = import_module("tilelang.autotuner.param").AutotuneResult
    if latency_ms is not None:
        kernel.update_tuner_result(latency=latency_ms, config=config, ref_latency=reference_ms)
    return result(
        latency=latency_ms,
        config=config,
        ref_latency=reference_ms,
        libcode=kernel.get_kernel_source(),
        func=kernel.prim_func,
        kernel=kernel,
    )


class ScriptGround:
    """The ground of a script: see ``tilelang_tuning.Ground``. Its requests for GPUs have no meaning here."""

    def __init__(self, settings: Settings, tally: Tally, study: RunStudy) -> None:
        self.objects = ObjectStore(settings.home / "objects")
        self._tally = tally
        self._study = study

    def install(self) -> None:
        """Make TileLang's own tuner call this one."""
        tuner: Any = import_module("tilelang.autotuner.tuner").AutoTuner

        def run(this: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401 (TileLang's)
            return tune_chain(self, this, *args, **kwargs)

        tuner.run = run
        _installed.append(self)

    def study(self, order: StudyOrder, answer: Callable[[AuthorRequest], AuthorReply]) -> Studied:
        """See ``Ground``."""
        studied = self._study(order, answer)
        self._note(studied.trials)
        return studied

    def rework(self, kernel: Kernel) -> Kernel:
        """See ``Ground``: options of compilers for GPUs do not matter either."""
        return msgspec.structs.replace(as_cpu_work(kernel), pass_options={}, flags=())

    def timing(self, _asked: TimingPolicy | None, _backend: str) -> TimingPolicy | None:
        """See ``Ground``: a hundred launches of a GPU would be minutes here."""
        return None

    def name_devices(
        self, _numbers: Sequence[int | str] | None, *, are_several: bool | None
    ) -> tuple[str, ...]:
        """See ``Ground``."""
        del are_several
        return ()

    def compile(
        self,
        tuner: Any,  # noqa: ANN401 (TileLang's)
        func: object,
        _config: Mapping[str, object],
        _trial: Trial | None,
    ) -> object:
        """See ``Ground``: TileLang's own way, which ends in a kernel of ours."""
        return tuner.compile_args.compile_program(func)

    def hold(self) -> AbstractContextManager[None]:
        """See ``Ground``: a script's references are timed wherever it calls them."""
        return nullcontext()

    def _note(self, trials: Sequence[Trial]) -> None:
        timed = {trial.keys.build for trial in trials if trial.measurement and not trial.reused}
        for _ in timed:
            self._tally.note_timer("autotune")
        for trial in trials:
            if trial.keys.build:
                is_built = trial.build_s > 0 and not trial.reused
                self._tally.note_kernel(trial.keys.build, is_built=is_built)
            if trial.outcome is Outcome.COMPILE_ERROR:
                self._tally.note_refusal(Refusal(kernel=trial.kernel, message=trial.message))


_installed: list[ScriptGround] = []


def script_ground() -> ScriptGround | None:
    """The ground of the script that this process runs, if it runs one."""
    return _installed[-1] if _installed else None
