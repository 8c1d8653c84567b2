"""The request of ``regress`` and ``bisect``, and its form for the engine process."""

from typing import Literal

from tileyard.base.model import Limits, Measure, Record, Side
from tileyard.service.verbs import Verb
from tileyard.verbs.regress.result import Gate, Regression


class RegressRequest(Record, kw_only=True):
    """A comparison of ``base`` with ``head`` over ``files``, of a suite over what ``select`` says.

    ``gate`` states which change matters, and which one fails. With ``scripts`` the files are scripts for
    ``tileyard exec``, compared by ``measure``. No pair is timed for longer than ``case_s`` seconds, and
    none is begun after ``budget_s``. With ``rounds`` all kernels are built that many times on each side,
    and nothing is run. Pairs are ``built`` once, or known to be, ``timed`` as well, or ``confirmed`` if
    they have changed: timed with their code at other places. A ``clean`` comparison refuses a working tree
    with changes.
    """

    base: str
    head: str
    files: tuple[str, ...]
    clean: bool = False
    select: tuple[str, ...]
    scripts: bool
    measure: Measure | None
    rounds: int = 0
    target: str
    devices: tuple[str, ...]
    hosts: str
    gate: Gate
    case_s: float
    budget_s: float | None = None
    all_configs: bool = False
    until: Literal["built", "timed", "confirmed"] = "confirmed"
    limits: Limits
    python_limit_s: float
    compile_workers: int | None
    queue_limit_s: float


class StartRegress(Verb[Regression], kw_only=True):
    """Begin to time the kernels or programs of two sides against each other, where their binaries differ.

    The files of a side are Python files, each with the selected kernel or an empty name for all of its own.
    With a ``suite``, the path of one for base and for head, its programs are compared instead.
    """

    opener = "tileyard.verbs.regress.plan.regressing:open_regress"
    is_timing = True

    kept = "what was measured is recorded; the same command starts over"

    request: RegressRequest
    base: Side
    head: Side
    base_files: tuple[tuple[str, str], ...] = ()
    head_files: tuple[tuple[str, str], ...] = ()
    target: str
    suite: tuple[str, str] | None = None
