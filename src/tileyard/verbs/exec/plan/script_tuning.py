"""The tuner of a script on the CPU: every config is a kernel of this CPU, whatever its target."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Kernel, Outcome, TimingPolicy, Trial
from tileyard.base.settings import Settings
from tileyard.verbs.exec.plan.cpu_work import as_cpu_work
from tileyard.verbs.exec.plan.grounds import RunStudy, Studied, StudyOrder
from tileyard.verbs.exec.plan.tally import Refusal, Tally
from tileyard.verbs.exec.plan.tilelang_tuning import tune_chain
from tileyard.workers.protocol import AuthorReply, AuthorRequest


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
