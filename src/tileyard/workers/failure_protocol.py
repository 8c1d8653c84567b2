"""Defines the questions of a reduction to an author: how a Program fails, and what it is in TileLang."""

from typing import Literal

from tileyard.base.model import Record, Value
from tileyard.workers.question import Question

FailureWay = Literal["check", "mismatch", "compile_error", "elsewhere"]


class FailureFound(Record, tag="failure_found"):
    """How a ``program`` fails: messages by its signs, in order; none if it does not. Equal signs: the same
    way. ``source`` is a TileLang kernel with this Program, ``refusal`` the reason if there is none.
    """

    program: str
    signs: dict[str, str]
    source: str = ""
    refusal: str = ""


class FindFailure(Question[FailureFound], tag="find_failure"):
    """Ask how one config fails, or a ``program`` made of it, as text; its dimensions and scalars
    are numbers. A ``mismatch`` compares the Program's meaning with the ``target``'s, or with each
    pass of a ``pipeline``. The author knows nothing of a failure ``elsewhere``. With a ``sign``
    others do not matter. ``has_own_inputs``: arrays are the first elements of the kernel's own.
    """

    kernel: str
    arguments: dict[str, Value]
    config: dict[str, Value]
    way: FailureWay
    program: str = ""
    pipeline: str = ""
    target: str = ""
    plugins: dict[str, str] = {}
    has_own_inputs: bool = True
    sign: str = ""
