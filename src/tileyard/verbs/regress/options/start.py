"""The request of ``regress`` to the engine process. Light to import."""

from typing import Literal

from tileyard.base.measures import Measure
from tileyard.base.model import Limits, Side
from tileyard.service.verbs import Verb
from tileyard.verbs.regress.result.gate import Gate
from tileyard.verbs.regress.result.timed import Regression


class StartRegress(Verb[Regression], kw_only=True):
    """Time the kernels or programs of two sides against each other, where their binaries differ. A side's
    files are Python files, each with the selected kernel or an empty name for all. With a ``suite``, its path
    for base and head, the programs that ``select`` selects are compared instead; with ``scripts`` the files
    are scripts for ``tileyard exec``, compared by ``measure``. ``gate`` states which change matters or fails.
    No pair is timed for longer than ``case_s`` seconds, none begins after ``budget_s``. With ``rounds`` all
    kernels are built that often per side, and nothing runs. Pairs are ``built`` once, or known to be,
    ``timed`` too, and if changed ``confirmed`` with code at other places. The rest is as in StartTune.
    """

    opener = "tileyard.verbs.regress.plan.regressing:open_regress"
    is_timing = True

    kept = "what was measured is recorded; the same command starts over"

    base: Side
    head: Side
    base_files: tuple[tuple[str, str], ...]
    head_files: tuple[tuple[str, str], ...]
    target: str
    gate: Gate
    case_s: float
    suite: tuple[str, str] | None = None
    scripts: bool = False
    measure: Measure | None = None
    select: tuple[str, ...] = ()
    budget_s: float | None = None
    rounds: int = 0
    all_configs: bool = False
    until: Literal["built", "timed", "confirmed"] = "confirmed"
    limits: Limits = Limits()
    compile_workers: int | None = None
    queue_limit_s: float = 1800.0
