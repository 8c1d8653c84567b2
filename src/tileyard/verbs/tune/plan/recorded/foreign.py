"""What foreign files of recorded spaces share: their numbers and values, read without trust."""

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import cache

from tileyard.base.errors import UsageError
from tileyard.base.model import Value
from tileyard.base.wording import show_value

CONFIDENCE = 0.95
LARGEST = 1e100
"""Limit of numbers, whose squares are summed."""
Table = Mapping[str, object]


def as_value(value: object, where: str) -> Value:
    """A parameter's value. Raises UsageError for lists, tables and null."""
    if isinstance(value, bool | int | float | str):
        return value
    raise UsageError(f"{where} is {show_value(value)}, and no number, text or truth value")


def as_config(table: Table, where: str) -> dict[str, Value]:
    """A config. Raises UsageError."""
    return {name: as_value(value, f"{where}: {name}") for name, value in table.items()}


def as_number(value: object, where: str) -> float:
    """A number, 0 for null. Raises UsageError, also for one of a size that cannot be meant."""
    if value is None:
        return 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) <= LARGEST:
            return float(value)
        raise UsageError(f"{where} is {show_value(value)}, and no number up to {LARGEST:g}")
    raise UsageError(f"{where} is {show_value(value)}, and no number")


def as_numbers(value: object, where: str) -> list[float]:
    """A list of numbers, empty for null. Raises UsageError."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [as_number(one, where) for one in value]
    raise UsageError(f"{where} is {show_value(value)}, and no list of numbers")


def find_interval(mean: float, samples: Sequence[float]) -> tuple[float, float]:
    """The interval of 95 % of a mean, from the samples behind it; at most their whole range."""
    if len(samples) < 2:
        return mean, mean
    middle, free = math.fsum(samples) / len(samples), len(samples) - 1
    variance = math.fsum((one - middle) ** 2 for one in samples) / free
    half = _quantile(free) * math.sqrt(variance / len(samples))
    return max(mean - half, min(*samples, mean)), min(mean + half, max(*samples, mean))


@cache
def _quantile(free: int) -> float:
    """Student's, for a two-sided interval: Abramowitz and Stegun, 26.7.5; SciPy takes long to import."""
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )
