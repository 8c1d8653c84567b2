"""The request of ``test`` to the engine process. Light to import."""

from typing import Literal

from tileyard.service.verbs import Verb
from tileyard.verbs.test.result.records import Wish
from tileyard.verbs.test.result.result import SuiteResult


class StartTest(Verb[SuiteResult], kw_only=True):
    """Begin a run of a suite: of ``path``, the cases that ``wish`` selects.

    ``slots`` is the number of cases of programs that run at once if no ``devices`` are named, 0 for one on each core;
    for kernels on a CPU it is the number of parts of the cores. ``split`` is the maximum length of a piece, in seconds.
    ``shard`` is ``2/8`` for the second of eight. ``changed`` leaves out the cases that the run of that name, or
    ``any``, has proven, and with ``is_explained`` each case states what decided; ``rerun_failed`` leaves out those that
    did not fail in their last run. ``durations`` is a file of times measured elsewhere, ``durations_pattern`` selects
    its lines with times if it is a log of an unknown kind, ``toolchain`` is a bundle that steps use, which must be of
    ``commit`` if that is given. ``is_bundle`` is set if ``path`` is a bundle of a suite; with ``pack_to`` nothing is
    run, and such a bundle is written there. ``retries`` None means the policy's value. With ``require_check`` a case
    that nothing was compared with fails. Without ``keep_work`` the folders of cases that passed are removed. With
    ``fail_fast`` nothing is begun after the first failure that gates. ``check_sync`` is as in a yard. ``parameters``
    are values of the suite's parameters; the others have their first value.
    """

    opener = "tileyard.verbs.test.plan.suites:open_suite"
    kept = (
        "finished cases are recorded; --changed any skips those that passed with the same content"
    )

    path: str
    wish: Wish
    target: str = "cpu"
    slots: int = 0
    split: float | Literal["auto", "off"] = "auto"
    shard: str = ""
    budget_s: float = 0.0
    changed: str = ""
    parameters: dict[str, str] = {}
    is_explained: bool = False
    durations: str = ""
    durations_pattern: str = ""
    toolchain: str = ""
    commit: str = ""
    is_bundle: bool = False
    pack_to: str = ""
    rerun_failed: bool = False
    fail_fast: bool = False
    retries: int | None = None
    require_check: bool = False
    keep_work: bool = False
    check_sync: bool | None = False
    compile_workers: int | None = None
    queue_limit_s: float = 1800.0
