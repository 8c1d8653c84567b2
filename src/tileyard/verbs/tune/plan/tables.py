"""The verb ``tune`` for many shapes: one study per shape, in one run, and the dispatch table."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.events import Note, RunStarted, StopReason
from tileyard.base.model import BuildKey, Case, Device
from tileyard.base.wording import count_of
from tileyard.engine.authors import Authors
from tileyard.engine.yard import Rank
from tileyard.service.bench import Bench
from tileyard.service.runs import Ending, Plan
from tileyard.store.choices import add_choices, list_choices
from tileyard.verbs.tune.options import StartTable
from tileyard.verbs.tune.plan.starting import recall_in
from tileyard.verbs.tune.plan.strategies.base import FOREIGN
from tileyard.verbs.tune.plan.study import Study
from tileyard.verbs.tune.plan.table import ShapeStudy, Studies
from tileyard.verbs.tune.plan.tuning import open_study
from tileyard.verbs.tune.result import TableResult

REASONS: tuple[StopReason, ...] = ("budget", "gain", "done")
"""Why a run of several studies ended: the first that holds for one of them."""


async def open_table(
    start: StartTable, bench: Bench, devices: Sequence[Device], authors: Authors
) -> Plan[TableResult]:
    """Open the kernel's space for each shape, and plan the studies on these devices, all of one kind."""
    if len({device.identity for device in devices}) > 1:
        raise UsageError(
            "a dispatch table is for one kind of device, and these differ",
            "name those of one kind with --devices",
        )
    request = start.tune.request
    if request.strategy in FOREIGN:
        raise UsageError(
            f"--strategy {request.strategy} would need a process for each shape", "tune one shape"
        )
    recall = cache(recall_in(bench))
    plans, studies = [], []
    seen: dict[str, str] = {}
    for number, shape in enumerate(start.shapes, start=1):
        arguments = {**request.arguments, **shape.arguments}
        wanted = msgspec.structs.replace(
            request, arguments=arguments, shape=shape.declared or request.shape
        )
        own = msgspec.structs.replace(start.tune, request=wanted)
        try:
            plan = await open_study(own, bench, devices, authors, recall)
            study = plan.source
            if not isinstance(study, Study):
                raise AssertionError(f"{study} is not a study")
            twin = seen.setdefault(canonical_json(study.space.arguments), shape.where)
            if len(seen) < number:
                raise UsageError(f"these are the arguments of {twin}, too", "give each set once")
        except TileyardError as error:
            error.message = f"{shape.where}: {error.message}"
            raise
        plans.append(plan)
        studies.append(ShapeStudy(study, shape, number))
    source = Studies(studies, request, start.within)

    def fold(ending: Ending) -> TableResult:
        results = [plan.fold(ending) for plan in plans]
        result = source.result(ending.run, ending.reason, results)
        if ending.reason != "interrupted":
            write_down(bench.settings.home, result)
        return msgspec.structs.replace(result, unrecorded=tuple(ending.unrecorded))

    first = plans[0]
    starts = [Note(text=text) for one in studies if (text := one.study.space.describe_start())]
    told = [note for plan in plans for note in plan.notes if note not in starts]
    if starts:
        text = f"configs that won elsewhere are tried first for {count_of(len(starts), 'shape')}"
        told.append(Note(text=text))
    changed: dict[str, Any] = {
        "source": source,
        "fold": fold,
        "rank": _join_ranks({one.folder: p.rank for one, p in zip(studies, plans, strict=True)}),
        "begun": RunStarted(
            title=f"{first.begun.title} for {count_of(len(studies), 'shape')}",
            target=first.begun.target,
            cases=sum(plan.begun.cases for plan in plans),
        ),
        "trim_after_s": studies[0].study.budgets.screening_s,
        "notes": list(dict.fromkeys(told)),
        "listeners": [listener for plan in plans for listener in plan.listeners],
        "find_reason": lambda: min((plan.find_reason() for plan in plans), key=REASONS.index),
        "find_excess": lambda: min((plan.find_excess() for plan in plans), key=bool),
    }
    return Plan(**{**vars(first), **changed})


def _join_ranks(ranks: Mapping[str, Rank | None]) -> Rank | None:
    """Has each strategy learn of its own binaries, by folder. Times of different shapes give no order."""

    def rank(case: Case, build: BuildKey) -> None:
        own = ranks[f"{case.id.partition('/')[0]}/"]
        if own is not None:
            own(case, build)

    return rank if any(ranks.values()) else None


def write_down(home: Path, result: TableResult) -> None:
    """Replace the recorded winner of each row's study with the config of the row."""
    winners = {choice.trial: choice for choice in list_choices(home, result.kernel)}
    chosen = []
    for study, row in zip(result.studies, result.rows, strict=True):
        if study.best is None or row.trial is None or row.trial.config == study.best.config:
            continue
        if study.best.id in winners:
            choice = winners[study.best.id]
            chosen.append(
                msgspec.structs.replace(
                    choice,
                    config=dict(row.trial.config),
                    latency_ns=row.latency_ns,
                    trial=row.trial.id,
                    build=row.trial.keys.build,
                )
            )
    add_choices(home, chosen)
