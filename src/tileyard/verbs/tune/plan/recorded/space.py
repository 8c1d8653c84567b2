"""A recorded space: every config of a kernel with its outcome, time and cost; one text in JSON lines.

The first line is a ``Header``, each further one a ``Recorded``. Files and other formats: ``files.py``.
Numbers and values of foreign files are read without trust.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.base.decoding import decode_json
from tileyard.base.errors import UsageError
from tileyard.base.model import WELL, Outcome, Record, Value
from tileyard.base.wording import count_of, show_value
from tileyard.targets.own_sources import find_excess
from tileyard.verbs.tune.plan.strategies.base import Config, Points

FORMAT: Literal["space 1"] = "space 1"


class Header(Record, omit_defaults=True):
    """The first line of a file, which contains ``configs`` further ones.

    Times are in ``unit``: the ``statistic`` of a config's samples. ``parameters`` have their values in
    order. ``silicon`` is the identity of the device.
    ``source`` and ``licence`` are those of data from elsewhere.
    """

    tileyard: Literal["space 1"]
    kernel: str
    configs: int
    parameters: dict[str, tuple[Value, ...]]
    arguments: dict[str, Value] = {}
    target: str = ""
    device: str = ""
    silicon: str = ""
    unit: Literal["ns"] = "ns"
    statistic: Literal["median", "mean"] = "median"
    source: str = ""
    licence: str = ""


class Recorded(Record, omit_defaults=True):
    """One config: its outcome, its time with an interval of 95 %, None if it was not timed.

    ``build_s`` and ``run_s`` are what a trial cost, ``other_s`` what the tuner that recorded it added.
    ``reason`` says why it failed, ``exceeds`` names the limit for which it is too large. ``facts`` are those
    of its binary, known before it runs: registers, spill_bytes, shared_bytes, flops, read_bytes and the
    like.
    """

    config: dict[str, Value]
    outcome: Outcome = Outcome.PASSED
    time_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    build_s: float = 0.0
    run_s: float = 0.0
    other_s: float = 0.0
    reason: str = ""
    exceeds: str = ""
    facts: dict[str, Value] = {}

    @property
    def is_timed(self) -> bool:
        """Whether it is right, as far as known, and has a time."""
        return self.outcome in WELL and self.time_ns is not None

    def amount(self, name: str) -> float:
        """A fact that is a number; 0 if it is not known."""
        value = self.facts.get(name, 0.0)
        return 0.0 if isinstance(value, str) else float(value)

    @property
    def cost_s(self) -> float:
        """The seconds that a trial of it took when it was recorded, also of one that failed."""
        return self.build_s + self.run_s + self.other_s


@dataclass(frozen=True, kw_only=True)
class RecordedSpace:
    """A space with the measurement of each of its configs. ``note`` is a doubt about the file, if any."""

    header: Header
    configs: tuple[Recorded, ...]
    note: str = ""

    @property
    def name(self) -> str:
        """What it is of, for tables: the kernel and the device."""
        return " on ".join(filter(None, (self.header.kernel, self.header.device)))

    @cached_property
    def points(self) -> Points:
        """Its points as strategies see them: axes if all combinations are recorded, else a list."""
        axes = self.header.parameters
        if math.prod(map(len, axes.values())) == len(self.configs):
            points = Points(axes)
            if all(points.find(one.config) is not None for one in self.configs):
                return points
        return Points({}, [one.config for one in self.configs])

    def find(self, config: Config) -> Recorded:
        """What is recorded of one of its configs. Raises KeyError for another."""
        return self._by_text[canonical_json(config)]

    @property
    def measures(self) -> set[str]:
        """The names of facts that are numbers of 0 or more for all configs that can win."""
        timed = [one for one in self.configs if one.is_timed]
        return {
            name for name in timed[0].facts if all(_is_amount(one.facts.get(name)) for one in timed)
        }

    def within(self, bounds: Mapping[str, float]) -> "RecordedSpace":
        """The same space, in which configs that exceed bounds have failed, and are not run. Raises UsageError
        if that is all of them.
        """
        configs = tuple(_bound(one, bounds) for one in self.configs)
        if not any(one.is_timed for one in configs):
            timed = [one for one in self.configs if one.is_timed]
            least = ", ".join(
                f"{name} is at least {min(one.amount(name) for one in timed):.15g}"
                for name in bounds
            )
            raise UsageError(f"--bound: no config of {self.name} is within the bounds: {least}")
        return replace(self, configs=configs)

    @cached_property
    def times_ns(self) -> tuple[float, ...]:
        """The times of the configs that can win, the best first."""
        timed = (one.time_ns for one in self.configs if one.is_timed)
        return tuple(sorted(time_ns for time_ns in timed if time_ns is not None))

    @property
    def best_ns(self) -> float:
        """The time of the best config."""
        return self.times_ns[0]

    @cached_property
    def usual_cost_s(self) -> float:
        """The median cost of a config."""
        return statistics.median(one.cost_s for one in self.configs)

    @cached_property
    def _by_text(self) -> dict[str, Recorded]:
        return {canonical_json(one.config): one for one in self.configs}


def _is_amount(value: Value | None) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _bound(one: Recorded, bounds: Mapping[str, float]) -> Recorded:
    excess = find_excess({name: one.amount(name) for name in bounds}, bounds)
    if excess is None or not one.is_timed:
        return one
    return msgspec.structs.replace(
        one,
        outcome=Outcome.COMPILE_ERROR,
        reason=excess.message,
        exceeds=excess.limit,
        time_ns=None,
        run_s=0.0,
    )


def list_parameters(configs: Sequence[Config]) -> dict[str, tuple[Value, ...]]:
    """The values of each parameter in these configs: numbers in their order, others as they occur."""
    found: dict[str, dict[tuple[type, Value], Value]] = {}
    for config in configs:
        for name, value in config.items():
            found.setdefault(name, {})[type(value), value] = value
    return {name: _sort(tuple(values.values())) for name, values in found.items()}


def _sort(values: tuple[Value, ...]) -> tuple[Value, ...]:
    are_numbers = all(isinstance(value, int | float) for value in values)
    return tuple(sorted(values, key=float)) if are_numbers else values


def make_space(
    header: Header, configs: Sequence[Recorded], place: str, note: str = ""
) -> RecordedSpace:
    """The space of the file at ``place``. Raises UsageError for contradictions, or if nothing was timed."""
    seen: set[str] = set()
    for number, one in enumerate(configs):
        where = f"{place}: config {number + 1}"
        _check_values(one, where)
        text = canonical_json(one.config)
        if text in seen:
            raise UsageError(f"{where} occurs twice: {text}")
        seen.add(text)
        for name, value in one.config.items():
            if not _has_value(header.parameters.get(name, ()), value):
                raise UsageError(f"{where}: {name} is {value!r}, which its parameter does not list")
    if not any(one.is_timed for one in configs):
        raise UsageError(f"{place}: none of {count_of(len(configs), 'config')} has a time")
    return RecordedSpace(header=header, configs=tuple(configs), note=note)


def _check_values(one: Recorded, where: str) -> None:
    times = {"time_ns": one.time_ns, "low_ns": one.low_ns, "high_ns": one.high_ns}
    for name, time_ns in times.items():
        if time_ns is not None and not 0 < time_ns < math.inf:
            raise UsageError(f"{where}: {name} is {time_ns:g}, and no time above 0")
    costs = {"build_s": one.build_s, "run_s": one.run_s, "other_s": one.other_s}
    for name, cost_s in costs.items():
        if not 0 <= cost_s < math.inf:
            raise UsageError(f"{where}: {name} is {cost_s:g}, and no time")


def _has_value(known: Sequence[Value], value: Value) -> bool:
    return any(type(one) is type(value) and one == value for one in known)


def encode_space(header: Header, configs: Sequence[Recorded]) -> bytes:
    """The text of a space: its header, whose number of configs is set here, and a line per config."""
    first = msgspec.structs.replace(header, configs=len(configs))
    return b"".join(msgspec.json.encode(line) + b"\n" for line in (first, *configs))


def decode_space(data: bytes, place: str) -> RecordedSpace:
    """The space in the text of a file. Raises UsageError with the number of a wrong line."""
    lines = data.split(b"\n")
    last = lines.pop()
    number = 1
    try:
        header = decode_json(lines[0] if lines else last, Header)
        configs = []
        for number, line in enumerate(lines[1:], start=2):  # noqa: B007 - named in the error
            configs.append(decode_json(line, Recorded))
    except msgspec.DecodeError as error:
        raise UsageError(f"{place}:{number}: not a line of a recorded space: {error}") from None
    if last or len(configs) < header.configs:
        of = f"{len(configs)} of {count_of(header.configs, 'config')}"
        raise UsageError(f"{place} is cut: it contains {of}", "copy or write it again")
    if len(configs) > header.configs:
        raise UsageError(f"{place}: the header promises {header.configs} configs of {len(configs)}")
    return make_space(header, configs, place)


# ---- numbers and values of foreign files ---------------------------------------------------------

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
