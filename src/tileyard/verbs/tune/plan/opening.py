"""Opens a tuning run: its processes are started before the rest is imported."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tileyard.base.model import Device
from tileyard.service.bench import Bench
from tileyard.service.choosing import find_devices
from tileyard.service.revision import find_side
from tileyard.verbs.tune.options import StartTable, StartTune
from tileyard.verbs.tune.result import StudyResult, TableResult

if TYPE_CHECKING:
    from tileyard.engine.authors import Authors
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
    authors = await _begin(start, bench, devices)
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
    authors = await _begin(start.tune, bench, devices)
    # As above, and half a second of SciPy's.
    from tileyard.verbs.tune.plan.tables import open_table

    return await open_table(start, bench, devices, authors)


async def _begin(start: StartTune, bench: Bench, devices: Sequence[Device]) -> "Authors":
    """Start the processes of a run, and find the revision of its kernel's file beside them."""
    authors = bench.make_authors(devices=devices, recall=start.reuse)
    # Git first, which has mostly answered before an import leaves files that it would count.
    side, _ = await asyncio.gather(find_side(start.file), start.begin(bench, authors, devices))
    authors.sides[side.name] = side
    return authors
