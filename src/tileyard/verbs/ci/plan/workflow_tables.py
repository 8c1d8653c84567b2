"""Values in the tables of a workflow, filled in as far as they are known, and whether a job runs."""

import re
from collections.abc import Iterator, Mapping
from itertools import product

from tileyard.base.places import Place
from tileyard.verbs.ci.plan.workflow_expressions import fill


def list_filters(raw: object) -> tuple[str, ...]:
    """What decides besides its name whether an event starts a workflow. A schedule's hour does not count."""
    if isinstance(raw, list):  # of a schedule
        days = {" ".join(_say(get_value(row, "cron"), {}).split()[2:]) for row in raw}
        return (f"days {' or '.join(sorted(days))}",)
    keys = ("branches", "branches-ignore", "paths", "paths-ignore", "tags", "tags-ignore")
    found = ((key, _say(get_value(raw, key), {})) for key in keys)
    types = _say(get_value(raw, "types"), {}) or "usual"
    return (f"types {types}", *(f"{key} {text}" for key, text in found if text))


def list_needed_conditions(
    raw: object, jobs: Mapping[str, object], known: Mapping[str, str], seen: tuple[str, ...]
) -> Iterator[str]:
    """The conditions of the jobs that a job needs: it is skipped with them unless it says otherwise."""
    names = get_value(raw, "needs")
    if re.search(r"\b(always|cancelled|failure)\s*\(", read_text(raw, "if", {})):
        return
    for name in [names] if isinstance(names, str) else names if isinstance(names, list) else []:
        if name in jobs and name not in seen:
            yield from filter(None, [read_text(jobs[name], "if", known)])
            yield from list_needed_conditions(jobs[name], jobs, known, (*seen, name))


def list_ignored_failures(table: object, known: Mapping[str, str]) -> Iterator[str]:
    """The condition under which the failure of a step or job counts."""
    if read_text(table, "continue-on-error", known) not in ("", "false"):
        yield "failures count (continue-on-error)"


def expand_matrix(raw: object) -> Iterator[dict[str, str]]:
    """The combinations of a matrix; one if there is no matrix, or only a run knows it."""
    table = raw if isinstance(raw, dict) else {}
    axes = {key: value for key, value in table.items() if key not in ("include", "exclude")}
    lists = {key: value for key, value in axes.items() if isinstance(value, list)}
    combined = product(*lists.values()) if lists else ()
    legs = [{k: _say(v, {}) for k, v in zip(lists, values, strict=True)} for values in combined]
    for rule in _rows(table.get("exclude")):
        legs = [leg for leg in legs if any(leg.get(key) != text for key, text in rule.items())]
    for extra in _rows(table.get("include")):
        common = {key: text for key, text in extra.items() if key in lists}
        fits = [leg for leg in legs if lists and leg.items() >= common.items()]
        for leg in fits:
            leg.update(extra)
        legs += [] if fits else [dict(extra)]
    yield from legs or [{}]


def _rows(raw: object) -> list[dict[str, str]]:
    rows = raw if isinstance(raw, list) else []
    return [
        {key: _say(value, {}) for key, value in row.items()}
        for row in rows
        if isinstance(row, dict)
    ]


def get_value(raw: object, *keys: str) -> object:
    """The value at these keys; None if there is none."""
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def read_defaults(inputs: object, prefix: str = "inputs.") -> dict[str, str]:
    """The defaults of inputs."""
    rows = inputs.items() if isinstance(inputs, dict) else ()
    found = {key: get_value(row, "default") for key, row in rows}
    return {f"{prefix}{key}": str(text) for key, text in found.items() if text is not None}


def read_folder(table: object, known: Mapping[str, str]) -> str:
    """The folder in which the scripts of a workflow or job run."""
    return _say(get_value(table, "defaults", "run", "working-directory"), known)


def read_text(table: object, key: str, known: Mapping[str, str]) -> str:
    """The text of a key, filled in."""
    return _say(get_value(table, key), known)


def read_texts(table: object, key: str, known: Mapping[str, str], place: Place) -> dict[str, str]:
    """A table of texts, filled in; one that is an expression is known only in a run."""
    raw = get_value(table, key)
    if raw is not None and not isinstance(raw, str | dict):
        (place / key).fail("is not a table")
    return {name: _say(text, known) for name, text in raw.items()} if isinstance(raw, dict) else {}


def _say(raw: object, known: Mapping[str, str]) -> str:
    if isinstance(raw, list):
        return ", ".join(_say(one, known) for one in raw)
    if isinstance(raw, dict):
        return _say(raw.get("image", str(raw)), known)
    return fill(str(raw), known) if raw is not None else ""
