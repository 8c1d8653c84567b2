"""The request of ``test`` to the engine process. Light to import."""

from typing import Literal

from tileyard.service.verbs import Verb
from tileyard.verbs.test.result.records import Wish
from tileyard.verbs.test.result.result import SuiteResult


class StartTest(Verb[SuiteResult], kw_only=True):
    """Run the cases of a suite at ``path`` that ``wish`` selects. ``slots`` is how many cases of programs run
    at once without named ``devices``, 0 for the number of cores; kernels on a CPU get such parts of the
    cores. ``split`` limits a piece, in seconds. ``shard`` is ``2/8`` for the second of eight. ``changed``
    leaves out what the run of that name, or ``any``, has proven, and if ``is_explained`` each case states
    what decided; ``rerun_failed`` what did not fail last. ``durations`` is a file of times, in whose lines
    ``durations_pattern`` finds them if it is an unknown log. ``toolchain`` is a bundle that steps use, of
    ``commit`` if given. ``is_bundle``: so is ``path``, of a suite; with ``pack_to`` one is written there and
    nothing runs. ``retries`` None means the policy's. With ``require_check`` unchecked cases fail. Without
    ``keep_work`` folders of passed cases are removed. With ``fail_fast`` the first failure that gates ends
    the run. ``check_sync`` is as in a yard. ``parameters`` not given have their first value.
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
