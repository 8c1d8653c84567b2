"""One block of a kernel as trace events: its roles and what is in flight, in the order of an interpreter."""

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from tileyard.base.model import Side
from tileyard.base.wording import count_of
from tileyard.engine.authors import WorkerAuthor
from tileyard.show.opening import load_settings, present, write_or_print
from tileyard.show.words import clean_line, format_config
from tileyard.sync.findings import BlockSpan
from tileyard.verbs.trace.view.run import AnyPath, Drawn, Thread, TraceEvents
from tileyard.verbs.tune.options import TuneRequest, make_request
from tileyard.verbs.tune.plan.space import OpenSpace, ask_about_first
from tileyard.workers.protocol import BlockTraced, TraceBlock


def show_block(
    file: Path, name: str, values: Mapping[str, Any], output: AnyPath | None, *, as_json: bool
) -> int:
    """Run the middle block of a kernel's first config, print what it did, and write its trace. Raises
    UsageError.
    """
    request = make_request(name, values, trials=1)
    traced = asyncio.run(_ask(file, request, values))
    if output:
        write_or_print(output, msgspec.json.encode(describe_block_trace(traced, file.name)))
    if output != "-":
        present(traced, as_json, print_block)
    return 0


async def _ask(file: Path, request: TuneRequest, values: Mapping[str, Any]) -> BlockTraced:
    settings = load_settings()
    side = Side(name="", python_limit_s=values["python_limit"])
    author = WorkerAuthor(file, settings.home, settings.cores, side)

    def make(space: OpenSpace) -> TraceBlock:
        return TraceBlock(
            kernel=space.kernel,
            arguments=space.arguments,
            config=space.configs[0],
            architecture=values["pipeline"],
        )

    return await ask_about_first(author, request, make, values["limit"], failed="cannot be traced")


def describe_block_trace(traced: BlockTraced, file: str) -> dict[str, Any]:
    """A document of trace events: a thread per role, and as many per unit as it has operations in flight at
    once. A step takes a microsecond, as no durations are known; arrows lead from issues to operations.
    """
    made = TraceEvents()
    process = _name_block(traced)
    lanes: dict[tuple[int, str], list[tuple[int, Thread]]] = {}
    for role in sorted({span.role for span in traced.spans}):
        lanes[role, ""] = [(0, made.add_thread(process, _name_lane(role, "")))]
        for unit in sorted({span.unit for span in traced.spans if span.role == role} - {""}):
            count = _most_at_once([s for s in traced.spans if (s.role, s.unit) == (role, unit)])
            name = _name_lane(role, unit)
            threads = [made.add_thread(process, f"{name} {n}") for n in range(count)]
            lanes[role, unit] = [(0, thread) for thread in threads]
    issues: dict[tuple[int, int], tuple[Thread, Drawn]] = {}
    for span in traced.spans:
        free = lanes[span.role, span.unit]
        _, thread = heapq.heappop(free)
        heapq.heappush(free, (span.end, thread))
        drawn = _draw(span, file)
        made.draw(thread, drawn)
        if not span.unit:
            issues[span.role, span.begin] = thread, drawn
        elif (issue := issues.get((span.role, span.begin))) is not None:
            made.lead("in flight", issue, (thread, drawn))
    return made.make(
        {"time": "steps of an interpreter, a microsecond each: no durations are known"}
    )


def _draw(span: BlockSpan, file: str) -> Drawn:
    args = {"line": f"{file}:{span.line}"} if span.line else {}
    kind = span.unit or span.text.partition(" ")[0]
    return Drawn(name=span.text, category=kind, begin=span.begin, end=span.end, args=args)


def _most_at_once(spans: list[BlockSpan]) -> int:
    changes = sorted([(s.begin, 1) for s in spans] + [(s.end, -1) for s in spans])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def _name_lane(role: int, unit: str) -> str:
    who = f"role {role}" if role else "block"
    return f"{who}: {unit}" if unit else who


def _name_block(traced: BlockTraced) -> str:
    config = f" {format_config(traced.config)}" if traced.config else ""
    place = ", ".join(f"{axis} {at} of {traced.grid[axis]}" for axis, at in traced.place.items())
    return f"{traced.kernel}{config}, block {place}"


def print_block(console: Console, traced: BlockTraced) -> None:
    """Print what is in a trace, in lines."""
    for line in describe_block(traced):
        console.print(Text(clean_line(line)), soft_wrap=True)


def describe_block(traced: BlockTraced) -> Iterator[str]:
    """The number of steps of each role, and of operations of each unit, with the most in flight at once."""
    yield _name_block(traced)
    counts = Counter((span.role, str(span.unit)) for span in traced.spans)
    for (role, unit), count in sorted(counts.items()):
        own = [span for span in traced.spans if (span.role, span.unit) == (role, unit)]
        most = f", up to {_most_at_once(own)} in flight" if unit else ""
        what = count_of(count, "operation" if unit else "step")
        yield f"{_name_lane(role, unit)}: {what}{most}"
    if traced.mistakes:
        yield f"{count_of(traced.mistakes, 'mistake')}: tileyard check describes them"
    if not traced.is_whole:
        yield "only the last steps are kept"
