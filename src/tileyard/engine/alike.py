"""Cases of a run that have the same binary and inputs: the first one is run, the others end as it does."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tileyard.model import INFRASTRUCTURE, Keys, Outcome, Trial

CaseT = TypeVar("CaseT")


@dataclass
class Alike(Generic[CaseT]):
    """Who comes first and who follows. A case without a binary is alike to none."""

    _firsts: dict[tuple[str, str], str | Trial] = field(default_factory=dict)
    _followers: dict[str, list[CaseT]] = field(default_factory=dict)

    def follow(self, case: str, keys: Keys, follower: CaseT) -> Trial | bool:
        """The trial that the case is to end with, or whether it now follows another one that is under way."""
        if not keys.binary:
            return False
        first = self._firsts.setdefault((keys.binary, keys.golden), case)
        if isinstance(first, Trial):
            return first
        if first != case:
            self._followers.setdefault(first, []).append(follower)
        return first != case

    def end(self, case: str, trial: Trial) -> list[CaseT]:
        """Take in how a case ended; the followers that are to end with it.

        One of which nothing was learnt is nobody's first from now on.
        """
        key = (trial.keys.binary, trial.keys.golden)
        if trial.outcome not in INFRASTRUCTURE | {Outcome.NOT_RUN}:
            self._firsts[key] = trial
        elif self._firsts.get(key) == case:
            del self._firsts[key]
        return self._followers.pop(case, [])
