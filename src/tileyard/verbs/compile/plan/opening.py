"""Opens a run of ``compile``: its processes are started before the rest is imported."""

from typing import TYPE_CHECKING

from tileyard.base.model import Side
from tileyard.service.bench import Bench
from tileyard.verbs.compile.options import StartCompile
from tileyard.verbs.tune.result import CompileResult

if TYPE_CHECKING:
    from tileyard.service.runs import Plan


async def open_compile(start: StartCompile, bench: Bench) -> "Plan[CompileResult]":
    """The builds of a kernel's configs."""
    sides = (Side(pass_options=start.pass_options, pipeline=start.pipeline),)
    authors = bench.make_authors(sides=sides, recall=start.reuse)
    await start.begin(bench, authors)
    await bench.check_tools(start.target)
    # As for ``tune``: imports, made while these processes are making their own.
    from tileyard.verbs.compile.plan.compiling import open_compiling

    return await open_compiling(start, bench, authors)
