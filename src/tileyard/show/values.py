"""How values are written: as text on the command line, and as text or plain values in Python."""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tileyard.base.errors import NoEffectError, UsageError
from tileyard.base.wording import show_value
from tileyard.show.words import parse_duration_s as parse_duration_s
from tileyard.show.words import spell_duration as spell_duration

if TYPE_CHECKING:
    from tileyard.base.model import Value, Values
else:
    Value = bool | int | float | str  # as there; importing it takes a tenth of a second

Time: TypeAlias = str | float
"""``5m``, or seconds."""
Size: TypeAlias = str | int
"""``8GiB``, or bytes."""
Share: TypeAlias = str | float
"""``2%``, or a number."""
Number: TypeAlias = str | float
Repeats: TypeAlias = str | int | None
"""``50ms`` for a time, or a number of launches."""
Names: TypeAlias = str | Sequence[str] | None
FilePath: TypeAlias = str | os.PathLike[str] | None
Pairs: TypeAlias = Mapping[str, Value] | Sequence[str] | None
"""Values by name, or ``KEY=VALUE`` each."""
Configs: TypeAlias = Mapping[str, Value] | Sequence[Mapping[str, Value] | str] | str | None
"""Values by name, or ``KEY=VALUE,KEY=VALUE``: one config or several."""
Choices: TypeAlias = Mapping[str, Value | Sequence[Value]] | Sequence[str] | None
"""Values to try by name, or ``KEY=A,B,C`` each."""


def parse_value(text: str) -> Value:
    """An int, a float, ``true`` or ``false``; anything else is text."""
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def refuse_unused(why: str, given: Mapping[str, object]) -> None:
    """Raise NoEffectError for the first given option without effect; empty values are not given."""
    for option, value in given.items():
        if value:
            raise NoEffectError(f"{option} has no effect {why}", option=option)


def read_names(given: Names, _option: str = "") -> tuple[str, ...]:
    """One name or several."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def read_path(given: FilePath, option: str = "") -> str:
    """An absolute path, empty for none. Raises UsageError for empty text and for ``-``."""
    if given == "":
        raise UsageError(f"{option} is empty: it takes a path")
    refuse_dash(given, option)
    return os.path.abspath(given) if given is not None else ""  # noqa: PTH100 - of text, too


def refuse_dash(given: object, option: str) -> None:
    """Raise UsageError for the text ``-``, which is no path here; a ``Path`` of this name is one."""
    if given == "-":
        raise UsageError(f"{option} takes a path, and - is none (./- is)")


def read_text(given: object, _option: str = "") -> str:
    """A name or a formula; empty for none, and for a function, which stays in the caller's process."""
    return "" if given is None or callable(given) else str(given)


def read_time_s(given: Time | None, option: str) -> float | None:
    """A time in seconds, None for none; the message about an invalid one names the option."""
    if given is None:
        return None
    if not isinstance(given, str):
        if not math.isfinite(given) or given < 0:
            raise UsageError(f"{option}: {given} is not a number of seconds")
        given = f"{given:f}"
    try:
        return parse_duration_s(given)
    except UsageError as error:
        raise UsageError(f"{option}: {error.message}") from error


def read_repeats(given: Repeats, option: str) -> tuple[int, int]:
    """A number of launches, or nanoseconds: the other is 0, and both are for None."""
    if given is None:
        return 0, 0
    text = str(given).strip()
    forms = "25 is a number of launches, 50ms a time"
    launches = int(text[:40]) if text.isascii() and text.isdecimal() else 0
    try:
        time_ns = 0 if launches else round((read_time_s(text, option) or 0.0) * 1e9)
    except UsageError as error:
        raise UsageError(error.message, forms) from None
    if not launches and not time_ns:
        raise UsageError(f"{option} {text} measures nothing", forms)
    return launches, time_ns


def parse_pairs(items: str | Iterable[str], option: str) -> dict[str, str]:
    """``KEY=TEXT`` items; a repeated key is an error."""
    pairs: dict[str, str] = {}
    for item in [items] if isinstance(items, str) else items:
        key, equals, text = item.partition("=")
        if not (key and equals and text):
            raise UsageError(f"{option} {item!r} is not of the form KEY=VALUE")
        if key in pairs:
            raise UsageError(f"{option} {key} is given twice")
        pairs[key] = text
    return pairs


def read_values(given: Pairs, option: str) -> dict[str, Value]:
    """Values by name. Raises UsageError."""
    if isinstance(given, Mapping):
        return {key: _read_plain(option, key, value) for key, value in given.items()}
    return {key: parse_value(text) for key, text in parse_pairs(given or (), option).items()}


def read_configs(given: Configs, option: str) -> tuple[dict[str, Value], ...]:
    """Each config's values by name. Raises UsageError."""
    configs = []
    for one in [given] if isinstance(given, Mapping | str) else given or ():
        if not isinstance(one, Mapping | str):
            raise UsageError(f"{option} has {show_value(one)}, which is not a config")
        configs.append(read_values(one.split(",") if isinstance(one, str) else one, option))
    return tuple(configs)


def read_texts(given: Pairs, option: str) -> dict[str, str]:
    """Texts by name. Raises UsageError."""
    if isinstance(given, Mapping):
        return {str(key): str(value) for key, value in given.items()}
    return parse_pairs(given or (), option)


def read_lists(
    given: Mapping[str, Value | Sequence[Value]], option: str
) -> dict[str, tuple[Value, ...]]:
    """Plain values, one or several for each name. Raises UsageError."""
    several = {
        key: (values,) if isinstance(values, str) or not isinstance(values, Iterable) else values
        for key, values in given.items()
    }
    return {
        key: tuple(_read_plain(option, key, value) for value in values)
        for key, values in several.items()
    }


_POWERS = "pow2:"
_RANGE = re.compile(rf"({_POWERS})?(-?\d+)\.\.(-?\d+)(?::(-?\d+))?")
MOST_JOINED = 1 << 20
"""Most values of a list that has ranges in it; a range alone may be longer."""


def read_choices(given: Choices, option: str = "--config") -> "dict[str, Values]":
    """The values of ``--config`` for each parameter: a value or several, ``16..256:16`` for every 16th number
    from 16 to 256, ``pow2:16..256`` for powers of two. Raises UsageError.
    """
    if isinstance(given, Mapping):
        spans = {
            key: _shorten(values, f"{option} {key}")
            for key, values in given.items()
            if isinstance(values, range) and values
        }
        rest = {key: values for key, values in given.items() if key not in spans}
        lists: dict[str, Values] = {**read_lists(rest, option), **spans}
        return {key: lists[key] for key in given}
    pairs = parse_pairs(given or (), option)
    return {key: _read_several(text, f"{option} {key}") for key, text in pairs.items()}


def _read_several(text: str, named: str) -> "Values":
    parts = text.split(",")
    if not all(parts):
        raise UsageError(f"{named}={text} has an empty value")
    lists = [_read_part(part, f"{named}={part}") for part in parts]
    if len(lists) == 1 and isinstance(lists[0], range):
        return _shorten(lists[0], f"{named}={text}")
    if any(isinstance(one, range) and one[MOST_JOINED:] for one in lists):
        raise UsageError(f"{named}={text} lists too many values", "give a long range alone")
    return tuple(value for one in lists for value in one)


def _read_part(text: str, named: str) -> "Sequence[Value]":
    """The values of a range, or the only one of anything else."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        if _seems_range(text):
            forms = "a range is 16..256, 16..256:16 for every 16th number, or pow2:16..256"
            raise UsageError(f"{named} is not a complete range of whole numbers", forms)
        return (parse_value(text),)
    first, last, step = int(match[2][:40]), int(match[3][:40]), int((match[4] or "1")[:40])
    if match[1]:
        from tileyard.frontend.declare import powers_of_two  # for this alone

        if match[4]:
            raise UsageError(f"{named}: powers of two take no step")
        try:
            return powers_of_two(first, last)
        except UsageError as error:
            raise UsageError(f"{named}: {error.message}") from None
    if step < 1:
        raise UsageError(f"{named}: the step is {step}, which is less than 1")
    if first > last:
        raise UsageError(f"{named} has no value: {first} is more than {last}")
    return range(first, last + 1, step)


def _seems_range(text: str) -> bool:
    """Whether a text was meant as a range: ``pow2:16``, or two dots with a number on one side."""
    first, last = text.partition("..")[0], text.rpartition("..")[2].partition(":")[0]
    has_number = any(isinstance(parse_value(end), int | float) for end in (first, last))
    return text.startswith(_POWERS) or (".." in text and has_number)


def _shorten(numbers: range, named: str) -> "Values":
    from tileyard.base.model import shorten_span  # importing it takes a tenth of a second

    try:
        return shorten_span(numbers)
    except UsageError as error:
        raise UsageError(f"{named}: {error.message}") from None


def _read_plain(option: str, key: object, value: object) -> Value:
    if not isinstance(key, str):
        raise UsageError(f"{option} has {show_value(key)}, which is not a name")
    if type(value) in (bool, int, float, str):
        return value  # type: ignore[return-value]  # mypy does not narrow by this
    # For values of Python alone: it brings NumPy.
    from tileyard.frontend.parameters import to_plain

    try:
        return to_plain(value)
    except UsageError as error:
        raise UsageError(f"{option} {key}: {error.message}", error.hint) from None


def spell_bytes(size: int) -> str:
    """A whole number of GiB as it is written: ``8GiB``."""
    return f"{size >> 30}GiB"


def parse_share(text: str | float, option: str = "") -> float:
    """``2%`` or ``0.02``: a share of more than 0 and less than 1."""
    given = str(text).strip()
    number = given.removesuffix("%")
    try:
        share = float(number) / (100 if given.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        named = option and f"{option}: "
        raise UsageError(
            f"{named}{text!r} is not a share above 0 and below 100 %, such as 2% or 0.02"
        )
    return share


def parse_factor(text: Number | None, option: str) -> float | None:
    """A number that is not negative, or None."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise UsageError(f"{option} {text!r} is not a number of at least 0, such as 1e-3")
    return number


def parse_bytes(text: str | int, option: str = "") -> int:
    """``512MiB``, ``8GiB``, ``10GB`` or ``10G`` (all powers of 1024), or a plain number of bytes."""
    match = re.fullmatch(r"(\d+)\s*(?:([KMGT])(?:i?B)?)?", str(text).strip())
    named = option and f"{option}: "
    if match is None:
        raise UsageError(f"{named}{text!r} is not a size such as 512MiB or 8GiB")
    size = int(match[1][:40]) << 10 * (" KMGT".index(match[2]) if match[2] else 0)
    if size >> 60:
        raise UsageError(f"{named}{str(text)[:40]!r} is more than there can be")
    return size


def read_bytes(given: Size | None, option: str) -> int | None:
    """A size in bytes, None for none. Raises UsageError."""
    return None if given is None else parse_bytes(given, option)


def parse_count(text: str | int, option: str) -> int | None:
    """A whole number from 1, None for ``auto``."""
    if text == "auto":
        return None
    number = int(str(text)[:40]) if str(text).isdecimal() else 0
    if number < 1:
        raise UsageError(f"{option} {text!r} is neither auto nor a number from 1")
    return number
