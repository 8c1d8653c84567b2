"""The verb ``regress``: builds kernels or programs of two sides, and times them where they differ."""

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.base.errors import UsageError
from tileyard.base.events import Note, PairsCounted, RunStarted
from tileyard.base.model import Case, Device, KernelWork, Measure, Side
from tileyard.base.wording import count_of
from tileyard.engine.authors import Authors
from tileyard.engine.hosting import make_slots
from tileyard.engine.hosts.slots import RemoteDevices
from tileyard.engine.programs import ProgramSite
from tileyard.engine.yard import Workplace
from tileyard.service.bench import Bench
from tileyard.service.choosing import (
    More,
    add_joined,
    choose_calm,
    find_calm,
    have_alike_join,
    require_one_kind,
    use_hosts,
)
from tileyard.service.runs import Ending, Plan
from tileyard.show.view import kind_of
from tileyard.show.words import ask_about_reference
from tileyard.targets.command.given import StepSite, site_variables
from tileyard.targets.registry import COMMAND, list_shifted
from tileyard.verbs.regress.options.start import StartRegress
from tileyard.verbs.regress.plan.pairs import (
    FALSE_DISCOVERIES,
    TIMING,
    Pair,
    Pairs,
    as_built,
    describe_pair,
    find_controls,
    fold_pairs,
)
from tileyard.verbs.regress.plan.revisions import Project
from tileyard.verbs.regress.plan.sides import (
    FindStored,
    StoredSide,
    find_entries,
    find_target,
    open_kernels,
    open_stored,
)
from tileyard.verbs.regress.plan.static import open_sides
from tileyard.verbs.regress.result import (
    Regression,
    TimedRow,
    describe_row,
    find_changes,
    require_figures,
    require_reported,
)
from tileyard.verbs.test.plan.side_suites import find_common, open_scripts, open_suite, read_sides
from tileyard.verbs.test.plan.source import find_pythons, find_targets
from tileyard.verbs.test.result.result import SuiteCase, count_devices


@dataclass(frozen=True, kw_only=True)
class _Opened:
    """What both sides have, built for ``target``. ``refused`` are kernels that a side cannot even plan."""

    target: str
    cases: Mapping[str, Sequence[Case]]
    authors: Authors
    devices: Sequence[Device]
    compared: Literal["kernel", "case"]
    refused: Mapping[str, Sequence[Build]] = field(default_factory=dict)
    programs: ProgramSite | None = None
    notes: tuple[str, ...] = ()
    packed: FindStored | None = None


async def open_regress(start: StartRegress, bench: Bench) -> Plan[Regression]:
    """Timed pairs, or rounds of builds."""
    if start.request.rounds:
        from tileyard.verbs.regress.plan.static import open_rounds

        return await open_rounds(start, bench)
    return await open_regression(start, bench)


async def open_regression(start: StartRegress, bench: Bench) -> Plan[Regression]:
    """Ask both sides for their kernels or programs, and plan the pairs."""
    sides = {
        "base": msgspec.structs.replace(start.base, name="base"),
        "head": msgspec.structs.replace(start.head, name="head"),
    }
    stored = {
        name: await asyncio.to_thread(open_stored, side, start.request.select, bench)
        for name, side in sides.items()
        if side.stored
    }
    if not stored:
        if start.suite is None and not start.request.scripts:
            return _plan(start, bench, await _open_kernels(start, bench))
        return _plan(start, bench, await _open_programs(start, bench, sides, stored))
    target = find_target(stored, "" if start.suite else start.target)
    has_programs = target == COMMAND
    if has_programs != bool(start.suite) and len(stored) < len(sides):
        what = ("kernels", "a suite of programs")
        has, named = what[has_programs], what[not has_programs]
        raise UsageError(
            f"nothing can be compared: {', '.join(stored)} has {has}, and {named} is named"
        )
    if has_programs:
        if start.request.gate.limits:
            raise UsageError("--fail-on has no effect on programs")
        return _plan(start, bench, await _open_programs(start, bench, sides, stored))
    require_figures(start.request.gate.limits, target)
    return _plan(start, bench, await _open_stored_kernels(start, bench, target, sides, stored))


async def _open_kernels(start: StartRegress, bench: Bench) -> _Opened:
    devices: Sequence[Device] = ()
    notes: tuple[str, ...] = ()
    target = start.target
    if start.request.until != "built":
        target, devices, notes = await find_calm(
            bench, start.hosts, start.devices, target, start.request.queue_limit_s
        )
    elif start.hosts:
        await use_hosts(bench, start.hosts)
    start = msgspec.structs.replace(start, target=target)
    authors, base, head = await open_sides(start, bench, devices=devices)
    if not (base.cases or head.cases):
        refused = (*head.refused, *base.refused)
        why = refused[0].message if refused else "it holds no kernel"
        raise UsageError(
            f"neither side has a kernel that could be timed: {why}",
            "--exec compares scripts that `tileyard exec` runs",
        )
    return _Opened(
        target=target,
        cases={"base": base.cases, "head": head.cases},
        authors=authors,
        devices=devices,
        compared="kernel",
        refused={"base": base.refused, "head": head.refused},
        notes=notes,
    )


async def _open_stored_kernels(
    start: StartRegress,
    bench: Bench,
    target: str,
    sides: Mapping[str, Side],
    stored: Mapping[str, StoredSide],
) -> _Opened:
    _, devices, notes = await find_calm(
        bench, start.hosts, start.devices, target, start.request.queue_limit_s
    )
    authors = bench.make_authors(devices=devices, sides=tuple(sides.values()))
    opened = await open_kernels(stored, start, target, authors, bench.settings)
    spared = max(one.quarantined for one in stored.values())
    return _Opened(
        target=target,
        cases=opened.cases,
        authors=authors,
        devices=devices,
        compared="kernel",
        refused=opened.refused,
        notes=(*notes, *_tell_of_spared(spared)),
        packed=find_entries(stored, opened.cases),
    )


async def _open_programs(
    start: StartRegress,
    bench: Bench,
    sides: Mapping[str, Side],
    stored: Mapping[str, StoredSide],
) -> _Opened:
    """Open the programs of both sides. On a slot a program's own work counts, which other work does not
    change; a device works while the program waits.
    """
    usual = Measure(of="wall_time" if start.devices else "cpu_time")
    paths = zip(sides, start.suite or (), strict=False)
    asked = {name: (sides[name], path) for name, path in paths if name not in stored}
    read = await read_sides(asked, start.request.select, bench.settings)
    if start.request.scripts:
        files = {"base": start.base_files, "head": start.head_files}
        read |= {
            name: open_scripts(side, files[name], start.request.measure, start.request.limits)
            for name, side in sides.items()
        }
    read |= {
        name: open_suite(one.suite, one.cases, one.quarantined, sides[name])
        for name, one in stored.items()
    }
    suites = {name: read[name] if start.devices else read[name].hold_one() for name in sides}
    common = find_common(suites)
    compared = [one for suite in suites.values() for one in suite.cases if one.id in common]
    sites = {name: suite.site for name, suite in suites.items()}
    needs = count_devices(compared)
    devices = add_joined(await find_grounds(start, bench, needs), needs, bench.hosts)
    if bench.hosts is not None:
        await _prepare_hosts(bench.hosts, sides, sites, compared)
    spared = max(suite.quarantined for suite in suites.values())
    placed = tuple(
        msgspec.structs.replace(side, python="", variables=site_variables(sites[name]))
        for name, side in sides.items()
    )
    cases = {name: suite.make_cases(name, common, usual) for name, suite in suites.items()}
    return _Opened(
        target=COMMAND,
        cases=cases,
        authors=bench.make_authors(devices=devices, sides=placed),
        devices=devices,
        compared="case",
        programs=ProgramSite(
            sites=sites,
            lanes=bench.settings.lanes,
            threads=bench.settings.step_threads,
            proves=False,
            targets=find_targets(compared),
        ),
        notes=(*_tell_of_spared(spared), *(_warn_of_modules(sides, sites) if start.hosts else ())),
        packed=find_entries(stored, cases) if stored else None,
    )


async def find_grounds(
    start: StartRegress, bench: Bench, counts: Collection[int]
) -> Sequence[Device]:
    """The devices on which programs are timed alone: without named ones one slot, or one of each host."""
    if not start.hosts:
        devices = start.devices
        return choose_calm(devices, COMMAND, bench.settings)[0] if devices else make_slots(1)
    limit_s = start.request.queue_limit_s
    more = More(slots=0 if start.devices else 1, counts=counts)
    found = await use_hosts(bench, start.hosts, start.devices, limit_s, more)
    require_one_kind(found)
    have_alike_join(bench, COMMAND, found)
    return found


async def _prepare_hosts(
    hosts: RemoteDevices,
    sides: Mapping[str, Side],
    sites: Mapping[str, StepSite],
    compared: Sequence[SuiteCase],
) -> None:
    """Have other hosts ready for the steps of both sides. Raises UsageError if a Python differs there."""
    await hosts.require_pythons(
        sorted({*find_pythons(compared), *(side.python for side in sides.values())} - {""})
    )
    for name, side in sides.items():
        if side.toolchain:
            await hosts.open_toolchain(Path(side.toolchain), "", sites[name])


def _warn_of_modules(sides: Mapping[str, Side], sites: Mapping[str, StepSite]) -> Iterator[str]:
    """That programs of a working tree import modules that do not go to other hosts, as a revision's do."""
    for name, side in sides.items():
        is_tree = not (side.stored or side.python or "PYTHONPATH" in side.variables)
        project = Project.of(Path(sites[name].suite)) if is_tree else None
        if project is None:
            continue
        listed = project.step_variables(project.root).get("PYTHONPATH", "").split(os.pathsep)
        if own := [one for one in filter(None, listed) if Path(one).is_relative_to(project.root)]:
            yield (
                f"{name}: modules in {', '.join(own)} do not go to other hosts, which may have others there; "
                "those of a commit do"
            )


def _tell_of_spared(spared: int) -> tuple[str, ...]:
    return (f"not compared: {count_of(spared, 'case')} in quarantine",) if spared else ()


def _plan(start: StartRegress, bench: Bench, opened: _Opened) -> Plan[Regression]:
    """The pairs of both sides, and the fold of their results."""
    request, budget_s = start.request, start.request.budget_s

    def is_out_of_time() -> bool:
        return budget_s is not None and bench.elapsed_s >= budget_s

    began_s: list[float] = []
    told: list[dict[str, str]] = []

    def watch(pair: Pair) -> None:
        """Report what is decided, and the time left if processes follow each other as they have so far."""
        began_s.append(bench.elapsed_s)
        undecided = sum(not one.is_over for one in source.pairs)
        left_s = None
        if len(began_s) > 1:
            each_s = (began_s[-1] - began_s[0]) / (len(began_s) - 1)
            left_s = each_s * source.count_left()
            if budget_s is not None:
                left_s = min(left_s, max(budget_s - bench.elapsed_s, 0.0))
        counted = PairsCounted(
            decided=len(source.pairs) - undecided, undecided=undecided, left_s=left_s
        )
        bench.conversation.tell_event(counted)
        if pair.is_over:
            margin = request.gate.margin_of(pair.name)
            row = describe_pair(pair, FALSE_DISCOVERIES / len(source.pairs), margin)
            kind = {side: kind_of(trial) for side, trial in pair.failure.items()}
            if kind and kind in told:  # the result counts those that fail alike
                return
            told.append(kind)
            bench.conversation.tell_event(Note(text=f"{describe_row(row)}; {undecided} undecided"))

    cases = {name: _to_time(own) for name, own in opened.cases.items()}
    is_over = (lambda: True) if request.until == "built" else is_out_of_time
    # What is already built cannot be built with its code at other places.
    can_shift = request.until == "confirmed" and opened.packed is None
    shifts = list_shifted(opened.target) if can_shift else ()
    source = Pairs(cases, request.gate, request.case_s, shifts, is_over)
    source.watch = watch

    def fold(ending: Ending) -> Regression:
        built = [
            ending.build_of(as_built(case, side), pair.name)
            for pair in source.pairs
            for side, case in (("base", pair.base), ("head", pair.head))
        ]
        require_reported(request.gate.limits, opened.target, built)
        found, alarms, mean = fold_pairs(source, opened.refused, request.gate)
        rows, notes = request.gate.judge(_add_changes(found, source.pairs, ending))
        return Regression(
            run=ending.run,
            target=opened.target,
            device=", ".join(one.name for one in opened.devices if not one.members),
            silicon=opened.devices[0].identity if opened.devices else "",
            base=start.base.name,
            head=start.head.name,
            margin=request.gate.margin,
            fail_over=request.gate.fail_over,
            rows=rows,
            compared=opened.compared,
            false_alarms=alarms,
            controls=find_controls(source, request.gate.margin),
            mean=mean,
            reason=ending.reason,
            seconds=ending.seconds,
            timed_s=source.timed_s,
            notes=(*opened.notes, *notes, *ask_about_references(source.pairs)),
            unrecorded=tuple(ending.unrecorded),
        )

    return Plan(
        source=source,
        fold=fold,
        authors=opened.authors,
        grounds=dict.fromkeys((opened.target, *shifts), opened.devices),
        named=start.devices,
        begun=RunStarted(
            title=f"regress {start.base.name} {start.head.name}", target=opened.target
        ),
        programs=opened.programs,
        packed=opened.packed,
        workplace=Workplace(
            reuse=False,
            queue_limit_s=request.queue_limit_s,
            compile_workers=request.compile_workers,
        ),
        find_reason=lambda: "budget" if is_out_of_time() else "done",
        budget_s=budget_s,
        find_excess=lambda: f"the budget of {budget_s:g} s was spent" if is_out_of_time() else "",
    )


def ask_about_references(pairs: Sequence[Pair]) -> Iterator[str]:
    """A question for each kernel or testcase of which both sides are wrong in the same way."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        work = pair.head.work
        name = work.kernel if isinstance(work, KernelWork) else pair.head.testcase
        groups.setdefault(name, []).append(pair)
    for name, group in groups.items():
        if all(len(pair.failure) == 2 for pair in group):
            failures = [trial for pair in group for trial in pair.failure.values()]
            yield from filter(None, [ask_about_reference(failures, f"builds of {name}")])


def _add_changes(rows: Sequence[TimedRow], pairs: Sequence[Pair], ending: Ending) -> list[TimedRow]:
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
