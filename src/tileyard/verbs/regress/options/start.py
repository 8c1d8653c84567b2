"""The request of ``regress`` to the engine process. Light to import."""

from typing import Literal

from tileyard.base.measures import Measure
from tileyard.base.model import Limits, Side
from tileyard.service.verbs import Verb
from tileyard.verbs.regress.result.gate import Gate
from tileyard.verbs.regress.result.timed import Regression


class StartRegress(Verb[Regression], kw_only=True):
    """Begin to time the kernels or programs of two sides against each other, where their binaries differ.

    The files of a side are Python files, each with the selected kernel or an empty name for all of its own.
    With a ``suite``, the path of one for base and for head, its programs are compared instead, those that
    ``select`` selects; with ``scripts`` the files are scripts for ``tileyard exec``, compared by ``measure``.
    ``gate`` states which change matters, and which one fails. No pair is timed for longer than ``case_s``
    seconds, and none is begun after ``budget_s``. With ``rounds`` all kernels are built that many times on each
    side, and nothing is run. Pairs are ``built`` once, or known to be, ``timed`` as well, or ``confirmed`` if
    they have changed: timed with their code at other places. ``compile_workers`` and ``queue_limit_s`` are as in StartTune.
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
