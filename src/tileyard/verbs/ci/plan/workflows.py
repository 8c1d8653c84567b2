"""Reads workflows of GitHub Actions as written: jobs with all their steps, each with its file and line.

Matrices, local reusable workflows and local composite actions are expanded. Messages name file, line and key.
"""

import os
import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import cast

import msgspec
from msgspec.structs import replace

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.places import Place, Strict, decode
from tileyard.verbs.ci.plan.workflow_expressions import fill
from tileyard.verbs.test.plan.files.yaml_files import YamlFile

DEEPEST = 10
"""Depth of calls of workflows and actions that GitHub allows."""


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


def _keys(words: str) -> type[Record]:
    names = {word.replace("-", "_") + "_": word for word in words.split()}
    fields = [(name, object, None) for name in names]
    return cast(type[Record], msgspec.defstruct("Keys", fields, bases=(Strict,), rename=names))


_WORKFLOW = _keys("name run-name on permissions env defaults concurrency jobs")
_JOB = _keys(
    "name permissions needs if runs-on environment concurrency outputs env defaults steps timeout-minutes"
    " strategy continue-on-error container services snapshot uses with secrets"
)
_STEP = _keys(
    "id if name uses run working-directory shell with env continue-on-error timeout-minutes"
)


class WorkflowStep(Record):
    """A step. ``run`` is a script for a shell whose first line is ``run_line``, ``does`` its label,
    ``seconds`` its time by a comment. One that ``is_setup`` is of an action that by its name prepares a
    runner; the script of one that ``is_foreign`` is not for a shell.
    """

    where: str
    name: str
    id: str = ""
    run: str = ""
    uses: str = ""
    options: dict[str, str] = {}
    env: dict[str, str] = {}
    cwd: str = ""
    conditions: tuple[str, ...] = ()
    does: str = ""
    seconds: float = 0.0
    run_line: int = 0
    is_setup: bool = False
    is_foreign: bool = False


class WorkflowJob(Record):
    """A job, one of the matrix ``leg_of``; ``title`` is GitHub's name for it. ``workflow`` identifies the
    workflow, ``workflow_name`` is GitHub's name for that. ``filters`` are per event of ``events`` what else
    decides whether it starts: types, paths and branches, or the days of a schedule.
    """

    name: str
    title: str
    workflow: str
    workflow_name: str
    events: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    runs_on: str = ""
    container: str = ""
    env: dict[str, str] = {}
    steps: tuple[WorkflowStep, ...] = ()
    leg_of: str = ""
    filters: dict[str, tuple[str, ...]] = {}


class _Scope(Record):
    """What is being read: names and conditions so far, known values, and the files on the way."""

    root: str
    known: dict[str, str]
    name: str
    workflow: str
    workflow_name: str = ""
    title: str = ""
    events: tuple[str, ...] = ()
    filters: dict[str, tuple[str, ...]] = {}
    conditions: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    files: tuple[str, ...] = ()

    def enter(self, path: Path, inputs: Mapping[str, str] | None = None) -> "_Scope":
        """The scope of a file that is called with these inputs; it sees nothing else."""
        if str(path) in self.files:
            raise UsageError(f"{self.files[-1]}: calls itself through {path}")
        if len(self.files) > DEEPEST:
            raise UsageError(
                f"{self.files[-1]}: calls go deeper than {DEEPEST} workflows and actions",
                f"it would call {path}; use that from a file nearer to {self.files[0]}",
            )
        known = {key: text for key, text in self.known.items() if key.startswith("github.")}
        known |= {f"inputs.{key}": text for key, text in (inputs or {}).items()}
        return replace(self, known=known, env={}, cwd="", files=(*self.files, str(path)))


def read_workflow(path: Path, root: Path, name: str = "") -> list[WorkflowJob]:
    """The jobs of a workflow in the checkout whose top is ``root``. Raises UsageError."""
    name = name or path.stem
    known = {"github.workspace": str(root)}
    scope = _Scope(root=str(root), known=known, name=name, workflow=name)
    return list(_read_file(path, scope.enter(path)))


def _read_file(path: Path, scope: _Scope) -> Iterator[WorkflowJob]:
    document = YamlFile(path)
    top, table = Place(document=document), document.table
    decode(table, _WORKFLOW, top)
    jobs, on = table.get("jobs"), table.get("on")
    if not isinstance(jobs, dict):
        top.fail("has no job")
    events = [on] if isinstance(on, str) else [*on] if isinstance(on, list | dict) else []
    if not events:
        top.fail("says no event under `on`")
    if events == ["workflow_call"] and not scope.events:
        return  # its callers decide when it runs, and with what
    known = read_defaults(get_value(on, "workflow_call", "inputs")) | scope.known
    place = os.path.relpath(path.parent.resolve() / path.name, scope.root)
    scope = replace(
        scope,
        known=known,
        # The name of a called one is its caller's, and GitHub names one without a name after its file.
        workflow_name=scope.workflow_name or read_text(table, "name", {}) or place,
        events=scope.events or tuple(events),
        filters=scope.filters or {event: list_filters(get_value(on, event)) for event in events},
        env=read_texts(table, "env", known, top),
        cwd=read_folder(table, known),
    )
    for name, raw in jobs.items():
        needed = list_needed_conditions(raw, jobs, known, (name,))
        inner = replace(scope, conditions=(*scope.conditions, *needed))
        yield from _read_job(name, raw, top / "jobs" / name, inner)


def _read_job(name: str, raw: object, place: Place, scope: _Scope) -> Iterator[WorkflowJob]:
    decode(raw, _JOB, place)
    table = raw if isinstance(raw, dict) else {}
    uses, steps = table.get("uses"), table.get("steps")
    if bool(uses) == bool(steps):
        place.fail("needs either `steps` or `uses`")
    legs = list(expand_matrix(get_value(table, "strategy", "matrix")))
    for leg in legs:
        known = scope.known | {f"matrix.{key}": value for key, value in leg.items()}
        shown = f" ({', '.join(leg.values())})" if leg else ""
        title = read_text(table, "name", known) or name + shown
        inner = replace(
            scope,
            name=f"{scope.name}/{name}{shown}",
            title=f"{scope.title} / {title}" if scope.title else title,
            known=known,
            conditions=(
                *scope.conditions,
                *filter(None, [read_text(table, "if", known)]),
                *list_ignored_failures(table, known),
            ),
            cwd=read_folder(table, known) or scope.cwd,
        )
        step = WorkflowStep(where=(place / "uses").where, name=str(uses), uses=str(uses or ""))
        options = read_texts(table, "with", known, place)
        if steps or not step.uses.startswith("./"):  # no job of another repository is visible
            outside = replace(step, options=options, conditions=inner.conditions)
            yield WorkflowJob(
                name=inner.name,
                title=inner.title,
                workflow=scope.workflow,
                workflow_name=scope.workflow_name,
                events=scope.events,
                conditions=inner.conditions,
                runs_on=read_text(table, "runs-on", known),
                container=read_text(table, "container", known),
                env=scope.env | read_texts(table, "env", known, place),
                steps=tuple(_read_steps(steps, place / "steps", inner)) if steps else (outside,),
                leg_of=f"{scope.name}/{name}" if len(legs) > 1 else "",
                filters=scope.filters,
            )
        else:
            path = Path(scope.root, str(uses))
            if not path.is_file():
                (place / "uses").fail(f"there is no workflow {uses}")
            yield from _read_file(path, inner.enter(path, options))


def _read_steps(rows: object, place: Place, scope: _Scope) -> Iterator[WorkflowStep]:
    known, document = scope.known, place.document
    for number, raw in enumerate(rows if isinstance(rows, list) else ()):
        here = place / number
        decode(raw, _STEP, here)
        if ("run" in raw) == ("uses" in raw):
            here.fail("needs either `run` or `uses`")
        run, uses = read_text(raw, "run", known), read_text(raw, "uses", known)
        labels = document.labels.get(here.keys, {}) if isinstance(document, YamlFile) else {}
        lines = document.text_lines if isinstance(document, YamlFile) else {}
        first_line = run.strip().partition("\n")[0]
        is_shell = re.match(r"$|(ba)?sh\b", read_text(raw, "shell", known)) is not None
        step = WorkflowStep(
            where=here.where,
            name=read_text(raw, "name", known) or f"Run {uses or first_line}",
            id=read_text(raw, "id", known),
            run=run if is_shell else "",
            is_foreign=not is_shell,
            uses=uses,
            options=read_texts(raw, "with", known, here),
            env=read_texts(raw, "env", known, here),
            cwd=read_text(raw, "working-directory", known) or ("" if uses else scope.cwd),
            conditions=(
                *scope.conditions,
                *filter(None, [read_text(raw, "if", known)]),
                *list_ignored_failures(raw, known),
            ),
            does=labels.get("does", ""),
            seconds=60 * float(labels.get("minutes", 0)),
            run_line=lines.get((*here.keys, "run"), 0),
        )
        yield from [step] if step.does or not uses.startswith("./") else _read_action(step, scope)


def _read_action(step: WorkflowStep, scope: _Scope) -> Iterator[WorkflowStep]:
    """The steps of a local composite action; of another kind, or fetched by an earlier step, one step."""
    paths = (Path(scope.root, step.uses, name) for name in ("action.yml", "action.yaml"))
    path = next((path for path in paths if path.is_file()), None)
    document = None if path is None else YamlFile(path)
    rows = None if document is None else get_value(document.table, "runs", "steps")
    if path is None or document is None or not isinstance(rows, list):
        yield step
        return
    inputs = read_defaults(document.table.get("inputs"), "") | step.options
    inner = scope.enter(path, {key: fill(text, scope.known) for key, text in inputs.items()})
    place = Place(document=document) / "runs" / "steps"
    for one in _read_steps(rows, place, replace(inner, conditions=step.conditions)):
        is_setup = one.is_setup or "setup" in path.parent.name
        yield replace(one, env=step.env | one.env, is_setup=is_setup)
