"""The verb ``regress``: kernels of two sides are built, and timed against each other where they differ."""

from collections.abc import Sequence

import msgspec

from tileyard.engine.yard import Workplace
from tileyard.errors import UsageError
from tileyard.events import Note, PairsCounted, RunStarted
from tileyard.model import Case, Device
from tileyard.regress.pairs import (
    FALSE_DISCOVERIES,
    TIMING,
    Pair,
    Pairs,
    as_built,
)
from tileyard.regress.static import find_changes
from tileyard.regress.timed import Regression, TimedRow, describe_row
from tileyard.regress.verdicts import describe_pair, fold_pairs
from tileyard.service.bench import Bench
from tileyard.service.runs import Ending, Plan
from tileyard.service.side_kernels import Asked, open_sides
from tileyard.service.verbs import StartRegress


async def open_regression(
    start: StartRegress, bench: Bench, devices: Sequence[Device]
) -> Plan[Regression]:
    """Ask both sides what they have, and plan its pairs."""
    asked = Asked(target=start.target, all_configs=start.all_configs, limits=start.limits)
    authors, base, head = await open_sides(start, asked, bench, devices=devices)
    if not (base.cases or head.cases):
        why = next(
            (build.message for build in (*head.refused, *base.refused)), "it holds no kernel"
        )
        raise UsageError(f"neither side has a kernel that could be timed: {why}")

    def is_out_of_time() -> bool:
        return start.budget_s is not None and bench.elapsed_s >= start.budget_s

    began_s: list[float] = []

    def watch(pair: Pair) -> None:
        """Say what is decided, and how long the rest takes if processes follow each other as they have so far."""
        began_s.append(bench.elapsed_s)
        undecided = sum(not one.is_decided for one in source.pairs)
        left_s = None
        if len(began_s) > 1:
            each_s = (began_s[-1] - began_s[0]) / (len(began_s) - 1)
            left_s = each_s * source.count_left()
            if start.budget_s is not None:
                left_s = min(left_s, max(start.budget_s - bench.elapsed_s, 0.0))
        counted = PairsCounted(
            decided=len(source.pairs) - undecided, undecided=undecided, left_s=left_s
        )
        bench.conversation.tell_event(counted)
        if pair.is_decided:
            margin = start.gate.margin_of(pair.name)
            row = describe_pair(pair, FALSE_DISCOVERIES / len(source.pairs), margin)
            bench.conversation.tell_event(Note(text=f"{describe_row(row)}; {undecided} undecided"))

    cases = {"base": _to_time(base.cases), "head": _to_time(head.cases)}
    source = Pairs(cases, start.gate, start.case_s, is_out_of_time, watch)
    refused = {"base": base.refused, "head": head.refused}

    def fold(ending: Ending) -> Regression:
        found, alarms, mean = fold_pairs(source, refused, start.gate)
        rows, notes = start.gate.judge(_add_changes(found, source.pairs, ending))
        return Regression(
            run=ending.run,
            target=start.target,
            device=devices[0].name,
            silicon=devices[0].identity,
            base=start.base.name,
            head=start.head.name,
            margin=start.gate.margin,
            fail_over=start.gate.fail_over,
            rows=rows,
            false_alarms=alarms,
            mean=mean,
            reason=ending.reason,
            seconds=ending.seconds,
            timed_s=source.timed_s,
            notes=notes,
            unrecorded=tuple(ending.unrecorded),
        )

    return Plan(
        source=source,
        fold=fold,
        authors=authors,
        grounds={start.target: devices[:1]},
        named=start.devices,
        begun=RunStarted(title=f"regress {start.base.name} {start.head.name}"),
        workplace=Workplace(
            reuse=False,
            queue_limit_s=start.queue_limit_s,
            compile_workers=start.compile_workers,
        ),
        is_cut_short=is_out_of_time,
        budget_s=start.budget_s,
        budget_reason=f"the budget of {start.budget_s or 0:g} s was spent before this case was reached",
        may_trim=lambda: True,
    )


def _add_changes(rows: Sequence[TimedRow], pairs: Sequence[Pair], ending: Ending) -> list[TimedRow]:
    """The rows with the figures of their binaries that differ."""
    changes = {
        pair.name: tuple(
            find_changes(
                ending.build_of(as_built(pair.base, "base"), pair.name),
                ending.build_of(as_built(pair.head, "head"), pair.name),
            )
        )
        for pair in pairs
    }
    return [msgspec.structs.replace(row, changes=changes.get(row.case, ())) for row in rows]


def _to_time(cases: Sequence[Case]) -> list[Case]:
    return [msgspec.structs.replace(case, until="judged", timing=TIMING) for case in cases]
