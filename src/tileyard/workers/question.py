"""Defines a question to a process, which knows the type of its answer."""

from typing import Generic, TypeVar, get_args

from tileyard.base.model import Record

AnswerT = TypeVar("AnswerT")


class Question(Record, Generic[AnswerT]):
    """Base of requests that have one answer, of the type that the request's own class names."""

    def check(self, answer: object) -> AnswerT:
        """The answer, checked to be of that type. Raises AssertionError if it is of another."""
        (kind,) = get_args(type(self).__orig_bases__[0])  # type: ignore[attr-defined]  # of a generic class
        if not isinstance(answer, kind):
            raise AssertionError(f"{type(self).__name__} was answered with {answer}")
        return answer  # type: ignore[no-any-return]  # its type is known when it runs


class Spent(Record):
    """The cost of an answer: ``start_s`` of its process to start, up to ``peak_bytes`` of memory."""

    seconds: float
    cpu_s: float
    start_s: float
    peak_bytes: int


class FileImported(Record, tag="file_imported"):
    """The first message of an author's process: it has imported the file, or failed to."""
