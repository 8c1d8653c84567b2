"""The requests of ``tune`` to the engine process. Light to import."""

from typing import TYPE_CHECKING, Self

import msgspec

from tileyard.service.verbs import KernelVerb, Verb
from tileyard.verbs.tune.result.records import Shape, StudyResult, TableResult, TuneRequest

if TYPE_CHECKING:
    from tileyard.base.settings import Settings


class StartTune(KernelVerb[StudyResult], kw_only=True):
    """Begin a tuning run; a case waits for a device for ``queue_limit_s``. For the targets ``also_build``
    configs are only built. With a ``bundle``, and no file, its configs are timed for their target. Reports
    put ``title`` before the kernel's name. ``fresh`` is as in a yard.
    """

    opener = "tileyard.verbs.tune.plan.opening:open_tune"
    is_timing = True

    request: TuneRequest
    fresh: bool = False
    title: str = "tune"
    bundle: str = ""
    also_build: tuple[str, ...] = ()
    overlap: bool = True
    queue_limit_s: float = 1800.0


class StartTable(Verb[TableResult], kw_only=True):
    """Tune for many shapes in one run; its table is ``within`` that share of each shape's best time."""

    opener = "tileyard.verbs.tune.plan.opening:open_tables"

    tune: StartTune
    shapes: tuple[Shape, ...]
    within: float

    def settle(self, settings: "Settings") -> Self:
        """See ``Verb``."""
        return msgspec.structs.replace(self, tune=self.tune.settle(settings))
