"""``${{ ... }}`` of workflows: what is known of them before anything runs. What is not known stays as text."""

import re
from collections.abc import Iterable, Mapping
from itertools import product

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"\s*(?:'((?:[^']|'')*)'|(-?\d+(?:\.\d+)?)|([A-Za-z_][\w-]*(?:\.[\w*-]+)*)|(&&|\|\||[=!<>]=|[!<>(),\[\]]))"
)
_COMPARED = re.compile(
    r"([A-Za-z_][\w.-]*)\s*[!=]=\s*'([^']*)'|'([^']*)'\s*[!=]=\s*([A-Za-z_][\w.-]*)"
)
MOST_CASES = 4096
"""So many combinations of values are tried on two conditions; with more of them they may both hold."""


class _Unknown:
    """The value of what is known only in a run."""


_UNKNOWN = _Unknown()
_Value = str | float | bool | None | _Unknown


def fill(text: str, known: Mapping[str, str]) -> str:
    """A text with each expression whose value is known replaced by it."""

    def put(found: re.Match[str]) -> str:
        value = _evaluate(found[1], known)
        if isinstance(value, _Unknown):
            return found[0]
        return (
            str(value).lower() if isinstance(value, bool) else str("" if value is None else value)
        )

    return _EXPRESSION.sub(put, text)


def holds(condition: str, known: Mapping[str, str]) -> bool | None:
    """Whether an ``if:`` holds; None where that is known only in a run."""
    inner = _EXPRESSION.fullmatch(condition.strip())
    return _truth(_evaluate(inner[1] if inner else condition, known)) if condition.strip() else True


def can_both_hold(
    first: Iterable[str], second: Iterable[str], events: Iterable[str], *, is_same_run: bool
) -> frozenset[str]:
    """The events at which all these conditions may hold. Of two runs only ``github`` is the same."""
    conditions = [one for one in (*first, *second) if one]
    values: dict[str, set[str]] = {}
    for condition in conditions:
        for left, text, other_text, right in _COMPARED.findall(condition):
            name = left or right
            if name != "github.event_name" and (is_same_run or name.startswith("github.")):
                values.setdefault(name, {"\0"}).add(text or other_text)
    count = 1
    for one in values.values():
        count *= len(one)
    cases = list(product(*values.values())) if count <= MOST_CASES else [()]
    return frozenset(
        event
        for event in events
        if any(
            all(
                holds(text, {**dict(zip(values, case)), "github.event_name": event}) is not False  # noqa: B905 - no case is longer
                for text in conditions
            )
            for case in cases
        )
    )


def _truth(value: _Value) -> bool | None:
    return None if isinstance(value, _Unknown) else bool(value)


def _evaluate(text: str, known: Mapping[str, str]) -> _Value:
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            return _UNKNOWN
        tokens.append(found)
        at = found.end()
    reader = _Reader(tokens, known)
    try:
        value = reader.read_or()
    except (IndexError, RecursionError):
        return _UNKNOWN
    return value if reader.is_done else _UNKNOWN


class _Reader:
    """Reads tokens from left to right; what it does not know ends in an unknown value."""

    def __init__(self, tokens: list[re.Match[str]], known: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._known = known
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at == len(self._tokens)

    def read_or(self) -> _Value:
        value = self._read_and()
        while self._take("||"):
            other = self._read_and()
            truth = _truth(value)
            value = other if truth is False else value
        return value

    def _read_and(self) -> _Value:
        value = self._read_compared()
        while self._take("&&"):
            other = self._read_compared()
            truth = _truth(value)
            if truth or (truth is None and _truth(other) is False):
                value = other
        return value

    def _read_compared(self) -> _Value:
        value = self._read_one()
        while sign := self._take("==", "!=", "<", ">", "<=", ">="):
            other = self._read_one()
            if isinstance(value, _Unknown) or isinstance(other, _Unknown) or sign[0] in "<>":
                value = _UNKNOWN
            else:
                value = (str(value).casefold() == str(other).casefold()) == (sign == "==")
        return value

    def _read_one(self) -> _Value:
        if self._take("!"):
            truth = _truth(self._read_one())
            return _UNKNOWN if truth is None else not truth
        if self._take("("):
            value = self.read_or()
            return value if self._take(")") else _UNKNOWN
        token = self._tokens[self._at]
        self._at += 1
        if token[1] is not None:
            return token[1].replace("''", "'")
        if token[2]:
            return token[2]
        if token[3] is None:
            return _UNKNOWN
        if self._take("("):
            return self._call(token[3].lower())
        if token[3] in ("true", "false"):
            return token[3] == "true"
        return self._known.get(token[3], _UNKNOWN)

    def _call(self, name: str) -> _Value:
        given: list[_Value] = []
        while not self._take(")"):
            given.append(self.read_or())
            self._take(",")
        texts = [str(one) for one in given if not isinstance(one, _Unknown)]
        if name == "always":
            return True
        if len(texts) != len(given) or len(texts) != 2:
            return _UNKNOWN
        match name:
            case "contains":
                return texts[1].casefold() in texts[0].casefold()
            case "startswith":
                return texts[0].casefold().startswith(texts[1].casefold())
            case "endswith":
                return texts[0].casefold().endswith(texts[1].casefold())
            case _:
                return _UNKNOWN

    def _take(self, *signs: str) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at][4] in signs:
            self._at += 1
            return self._tokens[self._at - 1][4]
        return ""
