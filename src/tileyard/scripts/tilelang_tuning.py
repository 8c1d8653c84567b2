"""TileLang's tuner, answered by a study of ours: configs are built, timed and remembered as by ``tileyard tune``.

What is tuned, when there is nothing to tune, and what becomes of the winner stays TileLang's. Between the
two it asks for all configs to be compiled and then for a time of each: the study stands there. Whether a
config is right only the script can say, so its own check runs in its process, on the fastest one first, until one
passes. Where there can be no study, configs are raced in the script's process.
"""

import concurrent.futures
import inspect
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from tileyard.artifacts.objects import ObjectStore
from tileyard.errors import TileyardError
from tileyard.frontend.closure import closure_digest
from tileyard.frontend.targets import for_target
from tileyard.measure.sampling import BestSoFar
from tileyard.model import INFRASTRUCTURE, Limits, Outcome, Trial
from tileyard.scripts.tally import Refusal, Tally
from tileyard.scripts.tilelang_jit import find_outputs
from tileyard.scripts.tilelang_timing import time_call
from tileyard.scripts.tuner_author import RunStudy, StudyOrder, TunerAuthor
from tileyard.settings import Settings

BUDGET_MS = 100.0
"""For about so long a config is timed that is not given up, where there is no study."""
RACE = "_tileyard_race"
"""The attribute of a tuner that holds its race."""
LIMIT = "_tileyard_limit_s"
"""The attribute of a tuner that holds how long one config may take, in seconds."""

Unit = tuple[int, Any, Any, Exception | None]


@dataclass
class Race:
    """What one tuner knows: milliseconds by work, and what made work fail.

    Configs that differ only in what a CPU does not know, such as stages and threads, are the same work.
    """

    best: BestSoFar = field(default_factory=BestSoFar)
    times_ms: dict[str, float] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    reference_ms: float | None = None


class TunerHooks:
    """Answers TileLang's tuner. ``study`` carries studies out, None where there are none."""

    def __init__(self, settings: Settings, tally: Tally, study: RunStudy | None) -> None:
        self._objects = ObjectStore(settings.home / "objects")
        self._tally = tally
        self._study = study

    def install(self) -> None:
        """Take the place of compiling and timing in TileLang's tuner, and keep no times on its disk."""
        tuner: Any = import_module("tilelang.autotuner.tuner").AutoTuner
        run, compile_all = tuner.run, tuner._prepare_compile_execution  # noqa: SLF001 (TileLang's)
        signature = inspect.signature(run)

        def limited(this: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401 (TileLang's)
            given = signature.bind(this, *args, **kwargs)
            given.apply_defaults()
            setattr(this, LIMIT, float(given.arguments.get("timeout") or 0))
            return run(this, *args, **kwargs)

        def timed(this: Any, jit_kernel: Any, **_: object) -> tuple[float, float | None]:  # noqa: ANN401
            return self._time(this, jit_kernel)

        def prepare(this: Any, **asked: Any) -> object:  # noqa: ANN401 (TileLang's)
            vars(this)[RACE] = Race()
            return self._prepare(this, asked) or compile_all(this, **asked)

        answers = {
            "run": limited,
            "_prepare_compile_execution": prepare,
            "_benchmark_target": timed,
            "_resolve_grouped_compile_mode": lambda *_, **__: ("cuda", "tvm_ffi", False, ""),
            "_load_result_from_disk": lambda *_: None,
            "_save_result_to_disk": lambda *_: None,
        }
        for name, answer in answers.items():
            setattr(tuner, name, answer)

    # ---- with a study -----------------------------------------------------------------------

    def _prepare(self, tuner: Any, asked: dict[str, Any]) -> object | None:  # noqa: ANN401
        """The tuner's configs in a study, and one piece of work that gives the winner; None for no study."""
        if self._study is None:
            return None
        configs, compiled = asked["config_args"], asked["compile_func"]
        author = self._make_author(tuner, asked)
        limit_s = getattr(tuner, LIMIT, 0.0) or Limits().run_s
        try:
            order = StudyOrder(
                kernel=author.kernel, configs=author.open(), limits=Limits(run_s=limit_s)
            )
            trials = self._study(order, author.answer)
        except TileyardError:
            return None  # in this process, then: whatever is wrong is the script's to hear
        if all(trial.outcome in INFRASTRUCTURE for trial in trials):
            return None
        self._note(trials)
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        future = pool.submit(
            lambda: list(self._find_winner(tuner, trials, author, configs, compiled))
        )
        units = {future: [(number, config) for number, config in enumerate(configs)]}
        return pool, [future], units, "Configurations in a study"

    def _make_author(self, tuner: Any, asked: dict[str, Any]) -> TunerAuthor:  # noqa: ANN401
        configs, elaborate = asked["config_args"], asked["elaborate_func"]
        profile, out_idx = tuner.profile_args, tuner.compile_args.out_idx
        target = tuner.compile_args.target
        return TunerAuthor(
            objects=self._objects,
            kernel=str(getattr(tuner.fn, "__name__", "kernel")),
            configs=[{k: v for k, v in config.items() if v is not None} for config in configs],
            elaborate=lambda number: for_target(elaborate(**dict(configs[number])), target),
            positions=lambda func: find_outputs(func, out_idx),
            supply=lambda number: self._inputs(
                tuner, asked["compile_func"](**dict(configs[number]))
            ),
            # What stands for the inputs that the tuner gives its kernels.
            identity=str(profile.supply_type)
            if profile.supply_prog is None
            else closure_digest((profile.supply_prog,)),
        )

    def _find_winner(
        self,
        tuner: Any,  # noqa: ANN401 (TileLang's)
        trials: Sequence[Trial],
        author: TunerAuthor,
        configs: Sequence[Any],
        compiled: Callable[..., Any],
    ) -> Iterator[Unit]:
        """The fastest config that the script finds right, compiled; of every other, why it is not."""
        race: Race = vars(tuner)[RACE]
        left = dict(enumerate(configs))
        is_found = False
        for trial in trials:
            number = author.number(trial.config)
            config = left.pop(number)
            if trial.measurement is None or is_found:
                error = RuntimeError(trial.message or "another config is faster")
                yield number, config, None, error
                continue
            try:
                kernel = compiled(**dict(config))
                self._check(tuner, kernel)
            except Exception as error:  # noqa: BLE001 (the script's check may raise anything)
                yield number, config, None, error
                continue
            is_found = True
            race.times_ms[kernel.adapter.work] = trial.measurement.median_ns / 1e6
            yield number, config, kernel, None
        for number, config in left.items():
            yield number, config, None, RuntimeError("it is the same as another config")

    def _note(self, trials: Sequence[Trial]) -> None:
        timed = {trial.keys.build for trial in trials if trial.measurement and not trial.reused}
        for _ in timed:
            self._tally.note_timer("autotune")
        for trial in trials:
            if trial.keys.build:
                self._tally.note_kernel(
                    trial.keys.build, is_built=trial.build_s > 0 and not trial.reused
                )
            if trial.outcome is Outcome.COMPILE_ERROR:
                self._tally.note_refusal(Refusal(kernel=trial.kernel, message=trial.message))

    # ---- in this process --------------------------------------------------------------------

    def _time(self, tuner: Any, jit_kernel: Any) -> tuple[float, float | None]:  # noqa: ANN401
        """Milliseconds of a config and of the script's reference; what is known is not timed again."""
        race: Race = vars(tuner).setdefault(RACE, Race())
        work = jit_kernel.adapter.work
        if work in race.failures:
            raise race.failures[work]
        if work not in race.times_ms:
            self._tally.note_timer("autotune")
            try:
                inputs = self._check(tuner, jit_kernel)
                race.times_ms[work] = _median_ms(partial(jit_kernel, *inputs), race.best)
            except Exception as error:
                race.failures[work] = error
                raise
        asked = tuner.profile_args
        if asked.ref_prog is not None and race.reference_ms is None:
            inputs = self._inputs(tuner, jit_kernel)
            race.reference_ms = _median_ms(partial(asked.ref_prog, *inputs), BestSoFar())
        return race.times_ms[work], race.reference_ms

    def _inputs(self, tuner: Any, kernel: Any) -> list[Any]:  # noqa: ANN401 (TileLang's)
        asked = tuner.profile_args
        profiler = kernel.get_profiler(tensor_supply_type=asked.supply_type)
        if asked.supply_prog is not None:
            params = vars(type(profiler))["_get_params"](profiler, with_output=False)
            return list(asked.supply_prog(params))
        return list(vars(type(profiler))["_get_inputs"](profiler, with_output=False))

    def _check(self, tuner: Any, kernel: Any) -> list[Any]:  # noqa: ANN401 (TileLang's)
        """Check one kernel against the script's reference, if it has one; what it was given."""
        asked = tuner.profile_args
        inputs = self._inputs(tuner, kernel)
        profiler = kernel.get_profiler(tensor_supply_type=asked.supply_type)
        if asked.ref_prog is not None and not asked.skip_check:
            if asked.manual_check_prog is not None:
                profiler.manual_assert_close(
                    asked.ref_prog, input_tensors=inputs, manual_check_prog=asked.manual_check_prog
                )
            else:
                profiler.assert_allclose(
                    asked.ref_prog,
                    input_tensors=inputs,
                    rtol=asked.rtol,
                    atol=asked.atol,
                    max_mismatched_ratio=asked.max_mismatched_ratio,
                )
        return inputs


def _median_ms(function: partial[object], best: BestSoFar) -> float:
    return statistics.median(time_call(function, BUDGET_MS, best)) / 1e6
