"""Defines what feeds the engine: a verb's own choice of cases."""

from collections.abc import Sequence
from typing import Protocol

from tileyard.base.model import Batch, Trial


class CaseSource(Protocol):
    """Feeds the engine. A suite is a fixed source; a study's strategy reacts to results."""

    async def ask(self, limit: int) -> Sequence[Batch]:
        """The next batches to start, best first; none right now if empty. May take long; one call at a
        time.
        """

    def tell(self, trial: Trial) -> None:
        """Take in how a case ended. Builds that failed are trials too."""

    def done(self) -> bool:
        """Whether no further batches will ever come."""
