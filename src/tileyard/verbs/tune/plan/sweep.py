"""Configs of a kernel as a source of cases that are built but not run."""

from collections.abc import Iterable, Sequence

from tileyard.base.model import Batch, Case, KernelWork, Limits, Trial, Value
from tileyard.verbs.tune.plan.space import OpenSpace


class Sweep:
    """A CaseSource: every case once, in order, one round after another."""

    def __init__(self, *rounds: Sequence[Case]) -> None:
        self.cases = tuple(case for cases in rounds for case in cases)
        self._rounds = [list(reversed(cases)) for cases in reversed(rounds)]
        self._pending = 0

    async def ask(self, limit: int) -> Sequence[Batch]:
        """The next configs of this round, one batch each; the next round once this one is over."""
        while self._rounds and not self._rounds[-1] and not self._pending:
            self._rounds.pop()
        left = self._rounds[-1] if self._rounds else []
        cases = [left.pop() for _ in range(min(limit, len(left)))]
        self._pending += len(cases)
        return [Batch(id=case.id, cases=(case,)) for case in cases]

    def tell(self, trial: Trial) -> None:
        """Record the trial of a config."""
        self._pending -= 1

    def done(self) -> bool:
        """Whether all cases were requested and have ended."""
        return not self._pending and not any(self._rounds)


def make_cases(
    space: OpenSpace, file: str, target: str, limits: Limits, folder: str = ""
) -> tuple[Case, ...]:
    """A case per config drawn so far, to be built but not run; ids begin with ``folder``."""
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
    """Each config with a unique name that is valid for a folder, as in ``block_M=64,block_N=128``."""
    named: set[str] = set()
    for number, config in enumerate(configs, start=1):
        # A number and a text of the same digits look alike, and are two configs.
        name = name_config(config, number)
        name = f"config-{number}" if name in named else name
        named.add(name)
        yield name, config


def name_config(config: dict[str, Value], number: int) -> str:
    """A name for a config that is valid for a folder, as in ``block_M=64,block_N=128``."""
    text = ",".join(f"{key}={value}" for key, value in config.items())
    sound = all(sign.isalnum() or sign in "=,._+-" for sign in text) and 0 < len(text) <= 120
    return text if sound else f"config-{number}"
