"""Workflows of GitHub Actions as they are written: jobs with all their steps, each with its file and line.

Matrices, local reusable workflows and local composite actions are expanded. Messages name file, line and key. One module because each of these may call each other one.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tileyard.errors import UsageError
from tileyard.model import Record
from tileyard.suite.files.places import Place
from tileyard.suite.files.tables import Strict, decode
from tileyard.suite.files.yaml_files import YamlFile
from tileyard.suite.workflow_expressions import fill

DEEPEST = 10
"""So many workflows or actions may call each other, as GitHub allows."""


class WorkflowStep(Record):
    """A step. ``does`` is its label, ``seconds`` what a comment says that it takes, ``run_line`` where its script
    begins. One that ``is_setup`` belongs to an action whose name says that it prepares a runner.
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


class WorkflowJob(Record):
    """A job, one of a matrix. ``title`` is what GitHub calls it; ``events`` start it; ``leg_of`` is its matrix."""

    name: str
    title: str
    where: str
    workflow: str
    events: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    runs_on: str = ""
    container: str = ""
    env: dict[str, str] = {}
    steps: tuple[WorkflowStep, ...] = ()
    leg_of: str = ""


class _WorkflowTable(Strict, rename="kebab"):
    name: object = None
    run_name: object = None
    on: object = None
    permissions: object = None
    env: object = None
    defaults: object = None
    concurrency: object = None
    jobs: dict[str, object] = {}


class _JobTable(
    Strict,
    rename={
        "if_": "if",
        "with_": "with",
        "runs_on": "runs-on",
        "timeout": "timeout-minutes",
        "continues": "continue-on-error",
    },
):
    name: str = ""
    permissions: object = None
    needs: object = None
    if_: str = ""
    runs_on: object = None
    environment: object = None
    concurrency: object = None
    outputs: object = None
    env: object = None
    defaults: object = None
    steps: list[object] = []
    timeout: object = None
    strategy: object = None
    continues: object = None
    container: object = None
    services: object = None
    snapshot: object = None
    uses: str = ""
    with_: object = None
    secrets: object = None


class _StepTable(
    Strict,
    rename={
        "if_": "if",
        "with_": "with",
        "cwd": "working-directory",
        "timeout": "timeout-minutes",
        "continues": "continue-on-error",
    },
):
    id: str = ""
    if_: str = ""
    name: str = ""
    uses: str = ""
    run: str | None = None
    cwd: str = ""
    shell: str = ""
    with_: object = None
    env: object = None
    continues: object = None
    timeout: object = None


# ---- workflows ----------------------------------------------------------------------------------


class _Caller(Record):
    """Who calls a workflow or action: names and conditions so far, what is known, and the files on the way."""

    root: str
    name: str = ""
    title: str = ""
    known: dict[str, str] = {}
    conditions: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    workflow: str = ""
    cwd: str = ""


def list_workflows(path: Path) -> list[Path]:
    """The workflows of a folder, or a file itself. Raises UsageError where there is none."""
    if not path.is_dir():
        return [path]
    inner = path / ".github" / "workflows"
    path = inner if inner.is_dir() else path
    files = sorted(one for one in path.iterdir() if one.suffix in (".yml", ".yaml"))
    if not files:
        raise UsageError(f"{path}: holds no workflow *.yml")
    return files


def read_workflow(path: Path, root: Path) -> list[WorkflowJob]:
    """The jobs of a workflow in the checkout whose top is ``root``. Raises UsageError."""
    known = {"github.workspace": str(root)}
    return list(_read_file(path, _Caller(root=str(root), known=known, workflow=path.name)))


def _read_file(path: Path, caller: _Caller) -> Iterator[WorkflowJob]:
    if str(path) in caller.files or len(caller.files) > DEEPEST:
        raise UsageError(f"{caller.files[-1]}: calls itself through {path}")
    document = YamlFile(path)
    top = Place(document=document)
    table = decode(document.table, _WorkflowTable, top)
    if not table.jobs:
        top.fail("has no job")
    triggers = _keys_of(table.on)
    if not triggers:
        top.fail("says no event under `on`")
    if caller.files:
        caller = replace(caller, known=caller.known | _defaults(table.on, caller.known))
    elif set(triggers) == {"workflow_call"}:
        return  # its callers say when it runs, and with what
    caller = replace(
        caller, files=(*caller.files, str(path)), events=caller.events or tuple(triggers)
    )
    env = _texts(table.env, caller.known, top / "env")
    cwd = _working_directory(table.defaults, caller.known)
    for name, raw in table.jobs.items():
        yield from _read_job(
            name,
            decode(raw, _JobTable, top / "jobs" / name),
            top / "jobs" / name,
            replace(caller, cwd=cwd),
            env,
        )


def _read_job(
    name: str, table: _JobTable, place: Place, caller: _Caller, env: dict[str, str]
) -> Iterator[WorkflowJob]:
    if bool(table.uses) == bool(table.steps):
        place.fail("needs either `steps` or `uses`")
    full = f"{caller.name}/{name}" if caller.name else f"{Path(caller.workflow).stem}/{name}"
    strategy = table.strategy if isinstance(table.strategy, dict) else {}
    legs = list(_expand_matrix(strategy.get("matrix")))
    for leg in legs:
        known = caller.known | {f"matrix.{key}": value for key, value in leg.items()}
        shown = f" ({', '.join(leg.values())})" if leg else ""
        title = fill(table.name, known) if table.name else name + shown
        inner = replace(
            caller,
            name=full + shown,
            title=f"{caller.title} / {title}" if caller.title else title,
            known=known,
            conditions=(*caller.conditions, *([fill(table.if_, known)] if table.if_ else [])),
            cwd=_working_directory(table.defaults, known) or caller.cwd,
        )
        if table.uses:
            yield from _call(table, place, inner)
            continue
        yield WorkflowJob(
            name=inner.name,
            title=inner.title,
            where=place.where,
            workflow=caller.workflow,
            events=caller.events,
            conditions=inner.conditions,
            runs_on=_say(table.runs_on, known),
            container=_say(table.container, known),
            env=env | _texts(table.env, known, place / "env"),
            steps=tuple(_read_steps(table.steps, place / "steps", inner)),
            leg_of=full if len(legs) > 1 else "",
        )


def _call(table: _JobTable, place: Place, caller: _Caller) -> Iterator[WorkflowJob]:
    """The jobs of a workflow that a job calls; one of another repository has none that can be seen."""
    if not table.uses.startswith("./"):
        return
    path = Path(caller.root, table.uses)
    if not path.is_file():
        (place / "uses").fail(f"there is no workflow {table.uses}")
    inputs = _texts(table.with_, caller.known, place / "with")
    known = {key: text for key, text in caller.known.items() if key.startswith("github.")}
    known |= {f"inputs.{key}": text for key, text in inputs.items()}
    yield from _read_file(path, replace(caller, known=known, cwd=""))


def _read_steps(rows: list[object], place: Place, caller: _Caller) -> Iterator[WorkflowStep]:
    for number, raw in enumerate(rows):
        here = place / number
        table = decode(raw, _StepTable, here)
        if (table.run is None) == (not table.uses):
            here.fail("needs either `run` or `uses`")
        document = here.document
        assert isinstance(document, YamlFile)
        labels = document.labels(here, document.last_line(place.keys, number))
        known = caller.known
        step = WorkflowStep(
            where=here.where,
            name=fill(table.name, known)
            or fill(table.uses or (table.run or "").split("\n")[0], known),
            id=table.id,
            run=fill(table.run or "", known),
            uses=fill(table.uses, known),
            options=_texts(table.with_, known, here / "with"),
            env=_texts(table.env, known, here / "env"),
            cwd=fill(table.cwd, known) or ("" if table.uses else caller.cwd),
            conditions=(*caller.conditions, *([fill(table.if_, known)] if table.if_ else [])),
            does=labels.get("does", ""),
            seconds=60 * float(labels.get("minutes", 0)),
            run_line=document.first_lines.get((*here.keys, "run"), 0),
        )
        action = _find_action(step, caller)
        if action is None or step.does:
            yield step
        else:
            yield from _read_action(action, step, caller)


def _find_action(step: WorkflowStep, caller: _Caller) -> Path | None:
    """The file of a local action; one that is not there may be fetched by a step before."""
    if not step.uses.startswith("./"):
        return None
    paths = (Path(caller.root, step.uses, name) for name in ("action.yml", "action.yaml"))
    return next((path for path in paths if path.is_file()), None)


def _read_action(path: Path, step: WorkflowStep, caller: _Caller) -> Iterator[WorkflowStep]:
    """The steps of a composite action; an action of another kind is one step."""
    if str(path) in caller.files or len(caller.files) > DEEPEST:
        raise UsageError(f"{step.where}: calls itself through {path}")
    document = YamlFile(path)
    top = Place(document=document)
    runs = document.table.get("runs")
    rows = runs.get("steps") if isinstance(runs, dict) else None
    if not isinstance(rows, list):
        yield step
        return
    inputs = _declared(document.table.get("inputs")) | step.options
    known = {key: text for key, text in caller.known.items() if key.startswith("github.")}
    known |= {f"inputs.{key}": fill(text, caller.known) for key, text in inputs.items()}
    inner = replace(
        caller, known=known, conditions=step.conditions, files=(*caller.files, str(path)), cwd=""
    )
    for one in _read_steps(rows, top / "runs" / "steps", inner):
        yield replace(
            one, env=step.env | one.env, is_setup=one.is_setup or "setup" in path.parent.name
        )


# ---- small parts --------------------------------------------------------------------------------


def _expand_matrix(raw: object) -> Iterator[dict[str, str]]:
    """The combinations of a matrix; one where there is none, or where only a run knows it."""
    if not isinstance(raw, dict):
        yield {}
        return
    axes = {key: value for key, value in raw.items() if key not in ("include", "exclude")}
    lists = {key: value for key, value in axes.items() if isinstance(value, list)}
    legs = (
        [
            {key: _say(value, {}) for key, value in zip(lists, values, strict=True)}
            | {
                f"{key}.{inner}": _say(text, {})
                for key, value in zip(lists, values, strict=True)
                if isinstance(value, dict)
                for inner, text in value.items()
            }
            for values in product(*lists.values())
        ]
        if lists
        else []
    )
    for rule in _rows(raw.get("exclude")):
        legs = [leg for leg in legs if any(leg.get(key) != text for key, text in rule.items())]
    for extra in _rows(raw.get("include")):
        fits = [
            leg
            for leg in legs
            if all(leg.get(key) == text for key, text in extra.items() if key in lists)
        ]
        if lists and fits:
            for leg in fits:
                leg.update(extra)
        else:
            legs.append(dict(extra))
    yield from legs or [{}]


def _rows(raw: object) -> list[dict[str, str]]:
    rows = raw if isinstance(raw, list) else []
    return [
        {key: _say(value, {}) for key, value in row.items()}
        for row in rows
        if isinstance(row, dict)
    ]


def _keys_of(raw: object) -> list[str]:
    """Events: one, a list, or a table."""
    if isinstance(raw, str):
        return [raw]
    return [str(one) for one in raw] if isinstance(raw, list | dict) else []


def _defaults(on: object, known: Mapping[str, str]) -> dict[str, str]:
    call = on.get("workflow_call") if isinstance(on, dict) else None
    declared = _declared(call.get("inputs") if isinstance(call, dict) else None)
    return {f"inputs.{key}": text for key, text in declared.items() if f"inputs.{key}" not in known}


def _declared(inputs: object) -> dict[str, str]:
    rows = inputs.items() if isinstance(inputs, dict) else ()
    return {
        key: str(row["default"] or "")
        for key, row in rows
        if isinstance(row, dict) and "default" in row
    }


def _working_directory(raw: object, known: Mapping[str, str]) -> str:
    run = raw.get("run") if isinstance(raw, dict) else None
    found = run.get("working-directory") if isinstance(run, dict) else None
    return fill(found, known) if isinstance(found, str) else ""


def _texts(raw: object, known: Mapping[str, str], place: Place) -> dict[str, str]:
    """A table of texts, filled in; one that is an expression is known only in a run."""
    if raw is None or isinstance(raw, str):
        return {}
    if not isinstance(raw, dict):
        place.fail("is no table")
    return {key: fill(_say(value, {}), known) for key, value in raw.items()}


def _say(raw: object, known: Mapping[str, str]) -> str:
    match raw:
        case None:
            return ""
        case str():
            return fill(raw, known)
        case list():
            return ", ".join(_say(one, known) for one in raw)
        case dict() if "image" in raw:
            return _say(raw["image"], known)
        case _:
            return fill(msgspec.json.encode(raw).decode(), known)
