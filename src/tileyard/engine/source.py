"""What feeds the engine: a verb's own choice of cases."""

from collections.abc import Sequence
from typing import Protocol

from tileyard.model import Batch, Trial


class CaseSource(Protocol):
    """Feeds the engine. A suite is a fixed source; a study's strategy reacts to results."""

    async def ask(self, limit: int) -> Sequence[Batch]:
        """The next batches to start, best first; empty if there are none right now.

        May take its time, as to question an author: the engine goes on meanwhile, and asks once at a time.
        """

    def tell(self, trial: Trial) -> None:
        """How a case ended. Builds that failed are trials too."""

    def done(self) -> bool:
        """Nothing will ever be asked again."""
