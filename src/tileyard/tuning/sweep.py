"""Configs of a kernel as a source of cases that are built, and not run."""

from collections.abc import Sequence

from tileyard.model import Batch, Case, Limits, Outcome, Trial, Value
from tileyard.tuning.space import OpenSpace

WELL_BUILT = frozenset({Outcome.SKIPPED})
"""How the trial of a config ends that could be built: it was not to be run."""


class Sweep:
    """A CaseSource: every case once, in order. ``trials`` are those told so far, by case."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = tuple(cases)
        self.trials: dict[str, Trial] = {}
        self._next = 0

    def ask(self, limit: int) -> Sequence[Batch]:
        """The next configs, each a batch of its own."""
        cases = self.cases[self._next : self._next + limit]
        self._next += len(cases)
        return [Batch(id=case.id, cases=(case,)) for case in cases]

    def tell(self, trial: Trial) -> None:
        """Take in how a config ended."""
        self.trials[trial.case] = trial

    def done(self) -> bool:
        """All is asked and told."""
        return len(self.trials) == len(self.cases)


def make_cases(space: OpenSpace, limits: Limits, folder: str = "") -> tuple[Case, ...]:
    """A case for each config, to be built and not timed; what they are called begins with ``folder``."""
    names: dict[str, int] = {}
    for number, config in enumerate(space.configs, start=1):
        # A number and a text of the same digits look alike, and are two configs.
        name = name_config(config, number)
        names[f"config-{number}" if name in names else name] = number
    return tuple(
        Case(
            id=f"{folder}{name}",
            kernel=space.kernel,
            arguments=space.arguments,
            config=dict(space.configs[number - 1]),
            timing=None,
            limits=limits,
        )
        for name, number in names.items()
    )


def name_config(config: dict[str, Value], number: int) -> str:
    """A name for a config that can be a folder's, as in ``block_M=64,block_N=128``."""
    text = ",".join(f"{key}={value}" for key, value in config.items())
    sound = all(sign.isalnum() or sign in "=,._+-" for sign in text) and 0 < len(text) <= 120
    return text if sound else f"config-{number}"
