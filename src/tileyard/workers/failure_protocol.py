"""Defines the questions of a reduction to an author: how a Program fails, and what it is in TileLang."""

from typing import Literal

from tileyard.base.model import Record, Value
from tileyard.workers.question import Question

FailureWay = Literal["check", "mismatch", "compile_error", "elsewhere"]


class FailureFound(Record, tag="failure_found"):
    """How a ``program`` fails: messages by the signs of its failures, in order; empty if it does not fail.

    Two Programs fail in the same way if their signs are the same. ``source`` is that of a TileLang kernel with this Program; if there is
    none, ``refusal`` is the reason.
    """

    program: str
    signs: dict[str, str]
    source: str = ""
    refusal: str = ""


class FindFailure(Question[FailureFound], tag="find_failure"):
    """Ask how one config fails, or a ``program`` that was made of it, as text; its dimensions and scalars are numbers.

    A ``mismatch`` compares the meaning of the Program with what the ``target`` makes of it; with a ``pipeline``, with what each of its passes
    makes of it. A failure ``elsewhere`` is one of which the author knows nothing. With a ``sign`` other failures do not matter.
    With ``has_own_inputs`` arrays are the first elements of those of the kernel.
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
