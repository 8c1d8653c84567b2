"""Parameters of a suite file: possible values, the chosen one, and limits and policies that depend on it: a
table such as ``run_s = { mode.sim = 1800, mode.npu = 60 }`` is replaced by one of its entries.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from tileyard.artifacts.digests import find_files
from tileyard.base.model import Value
from tileyard.base.places import KeyPath, Place, Table
from tileyard.verbs.test.plan.files.steps import name_nearest

if TYPE_CHECKING:
    from tileyard.verbs.test.plan.files.steps import Text

STEPS = ("build", "golden", "run", "hot", "check", "list")
"""Tables with a limit of their own; ``hot`` is inside ``run``."""
_VALUE = re.compile(r"[A-Za-z0-9_.+-]+")
"""Values become parts of names."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The values that each parameter of a file may have, and the chosen ones."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def variant(self) -> str:
        """The suffix of the names of cases: ``@npu``; empty without parameters."""
        return f"@{','.join(self.chosen.values())}" if self.chosen else ""


def show_value(value: object) -> str:
    """A value as written in templates."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_parameters(
    raw: object, place: Place, wanted: Mapping[str, str], taken: frozenset[str]
) -> Parameters:
    """The parameters declared at a place, each with the wanted value, or its first. ``taken`` are names with
    another meaning. Raises UsageError.
    """
    try:
        declared = msgspec.convert(raw, dict[str, tuple[Value, ...]])
    except msgspec.ValidationError:
        place.fail("is not a table of lists, such as mode = ['sim', 'npu']")
    values = {name: tuple(map(show_value, those)) for name, those in declared.items()}
    chosen = {}
    for name, those in values.items():
        at = place / name
        if name in taken or not name.isidentifier():
            at.fail("is not a name" if name not in taken else "has another meaning already")
        if not those:
            at.fail("has no value")
        for number, value in enumerate(those):
            if _VALUE.fullmatch(value) is None:
                (at / number).fail(
                    f"{value!r} is not a value: it becomes part of names, of letters, digits and _.+-"
                )
            if value in those[:number]:
                (at / number).fail(f"{value!r} appears twice")
        chosen[name] = wanted.get(name, those[0])
        if chosen[name] not in those:
            at.fail(
                f"--set {name}={chosen[name]} is not one of its values",
                _suggest(chosen[name], those),
            )
    return Parameters(values=values, chosen=chosen)


def settle(table: Table, parameters: Parameters, place: Place) -> Table:
    """A file with one value per limit and policy. Raises UsageError for unknown parameters and values."""
    if not parameters.values:
        return table
    settled = _settle_limits(table, parameters, place)
    policies = table.get("policies")
    if isinstance(policies, dict):
        settled["policies"] = {
            name: _settle_all(policy, parameters, place / "policies" / name)
            for name, policy in policies.items()
        }
    return settled


def _settle_limits(table: Table, parameters: Parameters, place: Place) -> Table:
    settled = dict(table)
    for key, value in table.items():
        at = place / key
        if key == "limits":
            settled[key] = _settle_all(value, parameters, at)
        elif key in STEPS and isinstance(value, dict):
            settled[key] = _settle_limits(value, parameters, at)
        elif key in ("testcase", "case") and isinstance(value, list):
            settled[key] = [
                _settle_limits(one, parameters, at / number) if isinstance(one, dict) else one
                for number, one in enumerate(value)
            ]
        elif key == "limit_s":
            del settled[key]
            settled |= _settle_all({key: value}, parameters, place)
    return settled


def _settle_all(table: object, parameters: Parameters, place: Place) -> Table:
    """A table whose values may be given by parameter; those not given for the chosen value are left out."""
    settled: Table = {}
    if not isinstance(table, dict):
        return table  # type: ignore[return-value]  # refused where it is decoded
    for key, value in table.items():
        if not isinstance(value, dict):
            settled[key] = value
            continue
        at = place / key
        if len(value) != 1:
            at.fail("is a table, and not one by the values of one parameter")
        ((name, options),) = value.items()
        if name not in parameters.values:
            (at / name).fail("is not a parameter", _suggest(name, tuple(parameters.values)))
        if not isinstance(options, dict):
            (at / name).fail(f"is not a table by the values of {name}")
        for option in options:
            if option not in parameters.values[name]:
                hint = _suggest(option, parameters.values[name])
                (at / name / option).fail(f"is not a value of {name}", hint)
        if parameters.chosen[name] in options:
            settled[key] = options[parameters.chosen[name]]
    return settled


def _suggest(name: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


class InputFiles:
    """Looks for the ``inputs`` and ``target_inputs`` of a file's steps. A pattern that depends on the case
    may match nothing, as long as one beside it matches.
    """

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        self._looked: set[tuple[KeyPath, tuple[str, ...]]] = set()
        self._idle: dict[KeyPath, tuple[Place, str]] = {}
        self._used: set[KeyPath] = set()

    def look(self, texts: "Sequence[Text]", patterns: tuple[str, ...]) -> None:
        """Look for what ``texts`` name for a case. Raises UsageError where that is nothing at all."""
        if not patterns or (key := (texts[0].place.keys, patterns)) in self._looked:
            return
        self._looked.add(key)
        for text, pattern in zip(texts, patterns, strict=True):
            if self._has(pattern):
                self._used.add(text.place.keys)
            elif text.names:
                self._idle.setdefault(text.place.keys, (text.place, pattern))
            else:
                refuse_idle_pattern(pattern, text.place)
        if not any(self._known[one] for one in patterns):
            refuse_idle_pattern(patterns[0], texts[0].place)

    def finish(self) -> None:
        """Raise UsageError for a pattern that matched nothing for any case."""
        for keys, (place, pattern) in self._idle.items():
            if keys not in self._used:
                refuse_idle_pattern(pattern, place)

    def _has(self, pattern: str) -> bool:
        if pattern not in self._known:
            is_there = Path(pattern).is_dir() or any(True for _ in find_files(Path("/"), pattern))
            self._known[pattern] = is_there
        return self._known[pattern]


def refuse_idle_pattern(pattern: str, place: Place) -> NoReturn:
    """Raise UsageError for an absolute path or glob that matches no file."""
    place.fail(f"{pattern} matches no file", name_nearest(Path(pattern)))
