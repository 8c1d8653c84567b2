"""Groups the cases of a run with the same binary and inputs: the first runs, the others end as it does."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tileyard.base.model import INFRASTRUCTURE, Keys, Outcome, Trial

CaseT = TypeVar("CaseT")


@dataclass
class Alike(Generic[CaseT]):
    """The first case and the followers of each group. A case without a binary follows none."""

    _firsts: dict[tuple[str, str], str | Trial] = field(default_factory=dict)
    _followers: dict[str, list[CaseT]] = field(default_factory=dict)

    def follow(self, case: str, keys: Keys, follower: CaseT) -> Trial | bool:
        """The trial with which the case must end, or whether it now follows another case under way."""
        if not keys.binary:
            return False
        first = self._firsts.setdefault((keys.binary, keys.golden), case)
        if isinstance(first, Trial):
            return first
        if first != case:
            self._followers.setdefault(first, []).append(follower)
        return first != case

    def end(self, case: str, trial: Trial) -> list[CaseT]:
        """Record how a case ended; return its followers. If nothing was learnt, it no longer is the first."""
        key = (trial.keys.binary, trial.keys.golden)
        if trial.outcome not in INFRASTRUCTURE | {Outcome.NOT_RUN}:
            self._firsts[key] = trial
        elif self._firsts.get(key) == case:
            del self._firsts[key]
        return self._followers.pop(case, [])
