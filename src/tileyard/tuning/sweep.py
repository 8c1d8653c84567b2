"""Configs of a kernel as a source of cases that are built, and not run."""

from collections.abc import Iterable, Sequence

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.events import BuildEnded, Event, Note
from tileyard.model import Batch, Case, KernelWork, Limits, Outcome, Trial, Value
from tileyard.tuning.request import BuiltConfig
from tileyard.tuning.space import OpenSpace

WELL_BUILT = frozenset({Outcome.SKIPPED})
"""How the trial of a config ends that could be built: it was not to be run."""


class Sweep:
    """A CaseSource: every case once, in order, one round after the other.

    ``trials`` are those told so far, by the case's id.
    """

    def __init__(self, *rounds: Sequence[Case]) -> None:
        self.cases = tuple(case for cases in rounds for case in cases)
        self.trials: dict[str, Trial] = {}
        self._rounds = [list(reversed(cases)) for cases in reversed(rounds)]
        self._pending = 0

    async def ask(self, limit: int) -> Sequence[Batch]:
        """The next configs of this round, each a batch of its own; the next round once this one is over."""
        while self._rounds and not self._rounds[-1] and not self._pending:
            self._rounds.pop()
        left = self._rounds[-1] if self._rounds else []
        cases = [left.pop() for _ in range(min(limit, len(left)))]
        self._pending += len(cases)
        return [Batch(id=case.id, cases=(case,)) for case in cases]

    def tell(self, trial: Trial) -> None:
        """Take in how a config ended."""
        self._pending -= 1
        self.trials[trial.case] = trial

    def done(self) -> bool:
        """All is asked and told."""
        return len(self.trials) == len(self.cases)


class BuildNotes:
    """A listener that keeps what else is said of builds: ``warnings``, and the cases that were built before."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._reused: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, BuildEnded) and event.reused:
            self._reused.add(event.case)
        if isinstance(event, Note) and event.level == "warning":
            self.warnings.append(event.text)

    def describe(self, case: Case, trial: Trial | None, objects: ObjectStore) -> BuiltConfig:
        """How the build of a config ended."""
        name = case.id.rpartition("/")[2]
        if trial is None:
            return BuiltConfig(case=name, config=case.config, outcome=Outcome.NOT_RUN)
        is_built = trial.outcome in WELL_BUILT
        artifact = find_artifact(trial.keys.build, objects) if is_built else None
        return BuiltConfig(
            case=name,
            config=case.config,
            outcome=Outcome.PASSED if is_built else trial.outcome,
            message="" if is_built else trial.message,
            build=trial.keys.build,
            build_s=trial.build_s,
            reused=case.id in self._reused or trial.reused,
            details="" if artifact is None else artifact.manifest.details,
            log=trial.log,
        )


def make_cases(
    space: OpenSpace, file: str, target: str, limits: Limits, folder: str = ""
) -> tuple[Case, ...]:
    """A case for each config drawn so far, to be built and not run; their ids begin with ``folder``."""
    return tuple(
        Case(
            id=f"{folder}{name}",
            work=KernelWork(
                file=file, kernel=space.kernel, arguments=space.arguments, config=config
            ),
            target=target,
            until="built",
            timing=None,
            limits=limits,
        )
        for name, config in name_configs(space.configs)
    )


def name_configs(
    configs: Iterable[dict[str, Value]],
) -> Iterable[tuple[str, dict[str, Value]]]:
    """Each config with a name of its own that can be a folder's, as in ``block_M=64,block_N=128``."""
    named: set[str] = set()
    for number, config in enumerate(configs, start=1):
        # A number and a text of the same digits look alike, and are two configs.
        name = name_config(config, number)
        name = f"config-{number}" if name in named else name
        named.add(name)
        yield name, config


def name_config(config: dict[str, Value], number: int) -> str:
    """A name for a config that can be a folder's, as in ``block_M=64,block_N=128``."""
    text = ",".join(f"{key}={value}" for key, value in config.items())
    sound = all(sign.isalnum() or sign in "=,._+-" for sign in text) and 0 < len(text) <= 120
    return text if sound else f"config-{number}"
