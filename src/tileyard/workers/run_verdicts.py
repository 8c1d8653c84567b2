"""Derives the outcome of a case from the end of its run step: who caused it."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tileyard.base.model import Outcome
from tileyard.processes.outcomes import tells_of_memory
from tileyard.processes.steps import StepEnd, StepOrder, describe_complaints, describe_end

UNFIT: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOEXEC,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ELIBBAD,
        errno.ETXTBSY,
    }
)
"""Errors at the start of a program that its file causes."""
UNFIT_ARGUMENTS: Final = frozenset({0, errno.E2BIG, errno.EINVAL})
"""Errors that its arguments cause; 0 is for arguments that no system call takes."""


def judge_run(end: StepEnd, order: StepOrder, own: Sequence[Path]) -> tuple[Outcome, str]:
    """The outcome of a case from the end of its run step; judging may still change ``passed``. A program that
    cannot be started is the case's failure only if in ``own`` folders, else the host's.
    """
    if end.ok:
        return Outcome.PASSED, describe_complaints(end, "")
    message = describe_end(end, order)
    if end.refusal:
        is_own = _is_own_refusal(end, order, own)
        return (Outcome.RUNTIME_ERROR if is_own else Outcome.INFRA_ERROR), message
    if end.survivors or end.lost:
        return Outcome.INFRA_ERROR, message
    if end.timed_out:
        return Outcome.TIMEOUT, message
    if tells_of_memory(end.tail):
        return Outcome.OUT_OF_MEMORY, message
    return Outcome.CRASHED if end.signal is not None else Outcome.RUNTIME_ERROR, message


def _is_own_refusal(end: StepEnd, order: StepOrder, own: Sequence[Path]) -> bool:
    if not end.refused:  # nothing could be started at all
        return False
    if end.errno in UNFIT_ARGUMENTS:
        return True
    if end.errno not in UNFIT or os.sep not in end.refused:  # looked for along PATH
        return False
    path = Path(os.path.normpath(Path(order.cwd, end.refused)))
    return any(path.is_relative_to(folder) for folder in own)
