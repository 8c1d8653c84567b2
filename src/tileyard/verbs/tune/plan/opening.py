"""Opens a tuning run: its processes are started before the rest is imported."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tileyard.base.model import Side
from tileyard.service.bench import Bench
from tileyard.service.choosing import find_devices
from tileyard.service.revision import find_revision
from tileyard.verbs.tune.options import StartTable, StartTune
from tileyard.verbs.tune.result import StudyResult, TableResult

if TYPE_CHECKING:
    from tileyard.service.runs import Plan


async def open_tune(start: StartTune, bench: Bench) -> "Plan[StudyResult]":
    """A study, or one of a bundle's configs."""
    if start.bundle:
        from tileyard.verbs.tune.plan.tuning import open_packed_study

        return await open_packed_study(start, bench)
    target, devices = await find_devices(
        bench, start.hosts, start.devices, start.target, start.queue_limit_s
    )
    start = msgspec.structs.replace(start, target=target)
    sides = (await asyncio.to_thread(_find_side, start),)
    authors = bench.make_authors(devices=devices, sides=sides, recall=start.reuse)
    await start.begin(bench, authors, devices)
    # Half a second of imports, made while these processes are making their own.
    from tileyard.verbs.tune.plan.tuning import open_study

    return await open_study(start, bench, devices, authors)


async def open_tables(start: StartTable, bench: Bench) -> "Plan[TableResult]":
    """A study for each shape."""
    tune = start.tune
    target, devices = await find_devices(
        bench, tune.hosts, tune.devices, tune.target, tune.queue_limit_s
    )
    start = msgspec.structs.replace(start, tune=msgspec.structs.replace(tune, target=target))
    sides = (await asyncio.to_thread(_find_side, tune),)
    authors = bench.make_authors(devices=devices, sides=sides, recall=tune.reuse)
    await start.tune.begin(bench, authors, devices)
    # As above, and half a second of SciPy's.
    from tileyard.verbs.tune.plan.tables import open_table

    return await open_table(start, bench, devices, authors)


def _find_side(start: StartTune) -> Side:
    """The side of a run, with the revision of its kernel's file."""
    return Side(revision=find_revision(Path(start.file)) if start.file else "")
