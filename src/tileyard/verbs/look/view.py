"""Asks an author for a look inside a block, and shows it: the page, and a few lines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tileyard.base.model import Side
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.engine.authors import WorkerAuthor
from tileyard.look.records import Influence, Look, Part, ShownOutput, Suspect, Visit, Way, WayPart
from tileyard.look.verdict import say_number
from tileyard.pages.page import render
from tileyard.show.words import format_config, make_visible
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import OpenSpace, ask_about_first
from tileyard.workers.protocol import LookInside

Loops = tuple[tuple[str, int], ...]
SPARE_S = 120.0
"""Seconds for all that the limit does not count: elaboration, inputs and the reference."""


async def ask(
    file: Path,
    request: TuneRequest,
    values: Mapping[str, Any],
    patience: float,
    settings: Settings,
) -> Look:
    """Look inside a block of the kernel's first config. Raises UsageError."""
    side = Side(name="", python_limit_s=values["python_limit"])
    author = WorkerAuthor(file, settings.home, settings.cores, side)

    def make(space: OpenSpace) -> LookInside:
        return LookInside(
            kernel=space.kernel,
            arguments=space.arguments,
            config=space.configs[0],
            block=values["block"],
            architecture=values["pipeline"],
            reference=values["reference"] or "",
            make_inputs=values["inputs"] or "",
            tolerance=space.tolerance,
            patience=patience,
        )

    limit_s = 10 * values["limit"] + SPARE_S
    reply = await ask_about_first(author, request, make, limit_s, failed="cannot be looked at")
    return reply.look


def describe(seen: Look, path: Path) -> Iterator[str]:
    """The answer, what is suspected, and where the page is."""
    yield make_visible(f"{seen.about.kernel}: {seen.verdict.sentence}")
    for one in seen.verdict.suspects:
        yield make_visible(f"  {seen.about.file}:{one.line}: {one.why}")
    yield make_visible(f"page: {path} ({path.stat().st_size / 1000:,.0f} kB)")


def render_look(seen: Look) -> str:
    """The page."""
    lines = {one.number: one.line for one in seen.statements}
    block = ", ".join(map(str, seen.block)) or "0"
    grid = " x ".join(map(str, seen.grid)) or "1"
    wrong = [one for one in seen.outputs if one.wrong]
    copies = [
        {
            "line": lines[one.number] or "",
            "unit": one.unit or "the threads",
            "loops": _loops(one.loops),
            "source": _part(one.source),
            "into": _part(one.into),
            "issued": one.issued,
            "landed": f"step {one.landed}" if one.landed >= 0 else "never",
        }
        for one in seen.copies
    ]
    return render(
        "look.html",
        assets=("assets/look.css", "assets/look.js"),
        title=f"{seen.about.kernel}: block ({block}) of {grid}",
        answer=seen.verdict.sentence,
        facts_rows=_list_facts(seen),
        suspects=[_suspect(seen, one) for one in seen.verdict.suspects],
        suspects_title=_title(seen.verdict.suspects),
        known=[*_known(seen), *seen.notes],
        outputs=[_output(one) for one in (wrong or seen.outputs)],
        ways=[_way(seen, one) for one in seen.ways],
        ways_see=_about_groups(seen),
        steps=len(seen.steps),
        steps_see=_about_steps(seen),
        copies=copies,
        copies_see="A copy is issued in one step, and its elements arrive in the same one or in a later one: "
        "asynchronous copies as late as the waits allow.",
        memory=[
            {
                "name": one.name,
                "scope": one.scope,
                "dtype": one.dtype,
                "shape": " x ".join(map(str, one.shape)),
                "bytes": f"{one.bytes:,}",
                "layout": one.layout,
                "life": f"steps {one.first} to {one.last}" if one.first >= 0 else "never",
            }
            for one in seen.buffers
            if one.scope != "global"
        ],
        memory_see=_about_memory(seen),
        layouts_see=seen.layouts,
        has_layouts=any(one.layout for one in seen.buffers),
        conflicts=[
            {
                "line": one.line or "",
                "text": one.text,
                "buffer": conflict.buffer,
                "how": conflict.how,
                "ways": conflict.ways,
            }
            for one in seen.statements
            for conflict in one.conflicts
        ],
        statements=[
            f"{one.line or '':>5}  {'    ' * one.depth}{one.text}" for one in seen.statements
        ],
        data=_data(seen, wrong or list(seen.outputs)),
    )


def _data(seen: Look, outputs: Sequence[ShownOutput]) -> dict[str, object]:
    numbers = {one.number for one in seen.verdict.suspects}
    start = next((at for at, step in enumerate(seen.steps) if step.number in numbers), 0)
    return {
        "source": seen.about.source,
        "first_line": seen.about.first_line,
        "suspects": [one.line for one in seen.verdict.suspects],
        "statements": seen.statements,
        "buffers": seen.buffers,
        "steps": seen.steps,
        "states": seen.states,
        "copies": seen.copies,
        "contents": seen.contents,
        "outputs": outputs,
        "start": start,
    }


def _title(suspects: Sequence[Suspect]) -> str:
    return "The statement to look at" if len(suspects) == 1 else "The statements to look at"


def _list_facts(seen: Look) -> list[tuple[str, str]]:
    return [
        ("File", seen.about.file),
        ("Arguments", format_config(seen.about.arguments)),
        ("Config", format_config(seen.about.config)),
        ("Steps", _count_steps(seen)),
        ("Shared memory", f"{_bytes_of(seen, 'shared'):,} bytes"),
        ("Wrong elements", _count_wrong(seen)),
    ]


def _count_steps(seen: Look) -> str:
    shown = len(seen.steps)
    return f"{seen.total_steps:,}" + (
        f", of which {shown:,} are shown" if shown < seen.total_steps else ""
    )


def _count_wrong(seen: Look) -> str:
    return ", ".join(
        f"{one.wrong:,} of {one.total:,} of {one.name}" for one in seen.outputs if one.want >= 0
    )


def _bytes_of(seen: Look, scope: str) -> int:
    return sum(one.bytes for one in seen.buffers if one.scope == scope)


def _suspect(seen: Look, one: Suspect) -> dict[str, object]:
    at = one.line - seen.about.first_line
    source = seen.about.source[at] if 0 <= at < len(seen.about.source) else ""
    why = one.why.replace(f"`{one.after}`", "this change") if one.after else one.why
    after, missing = one.after, ""
    for place in ("before", "after"):
        if after.endswith(f", {place} this statement"):
            after, missing = after.removesuffix(f", {place} this statement"), place
    shown = {"source": source.strip(), "why": why, "after": after, "missing": missing}
    return {**msgspec.structs.asdict(one), **shown}


def _known(seen: Look) -> Iterator[str]:
    verdict = seen.verdict
    yield from (f"{one}." if not one.endswith(".") else one for one in verdict.limits)
    if verdict.sizes and verdict.total:
        yield f"To save time, changes were tried on a smaller kernel, with {verdict.sizes}."
        if any(one.how == "change" for one in verdict.suspects):
            yield (
                "The lines above about changes hold for these sizes. If a line does not state that the "
                "change was tried at the kernel's own sizes, too, its number may be another one there."
            )


def _output(one: ShownOutput) -> dict[str, str]:
    if one.want < 0:
        return {
            "title": f"What the block wrote to {one.name}",
            "see": "There is no reference to compare it with.",
        }
    return {
        "title": f"Where {one.name} is wrong" if one.wrong else f"{one.name} is right",
        "see": f"{one.wrong:,} of the {one.total:,} elements that this block wrote are wrong. "
        "The first two maps have one scale: blue is negative, orange positive, and stronger colours are "
        "farther from 0. The third marks the wrong elements.",
    }


def _about_groups(seen: Look) -> str:
    """How many elements are wrong, in how many groups, and how many of these are followed."""
    total, followed = sum(one.wrong for one in seen.outputs), len(seen.ways)
    if not total:
        return ""
    each = "of each" if followed == seen.groups else f"of each of {followed}, the larger ones,"
    return (
        f"{total:,} wrong, in {count_of(seen.groups, 'group')}: elements of a group are written last by "
        "the same statement, are in one region, and in a sample of them the same statements took part. "
        f"One element {each} is followed."
    )


def _way(seen: Look, way: Way) -> dict[str, object]:
    name = f"{way.output}[{', '.join(map(str, way.index))}]"
    return {
        "name": name,
        "title": f"{name} is {say_number(way.got)}, the reference has {say_number(way.want)}"
        + (f"; wrong like it: {way.group}" if way.group else ""),
        "parts": [_way_part(seen, part) for part in way.parts],
        "influences": [_influence(seen, one) for one in way.influences],
        "influences_see": _about_influences(way.influences),
    }


def _way_part(seen: Look, part: WayPart) -> dict[str, object]:
    stmt = seen.statements[part.number]
    return {
        "line": stmt.line or "",
        "text": stmt.text,
        "count": part.count,
        "wrote": _parts(part.wrote),
        "read": _parts(part.read) or "nothing",
        "is_suspect": any(one.number == part.number for one in seen.verdict.suspects),
        "is_undefined": part.is_undefined,
        "visits_title": _about_visits(part),
        "visits": [_visit(one) for one in part.visits],
    }


def _about_visits(part: WayPart) -> str:
    if len(part.visits) == part.count:
        return "each execution"
    return f"{len(part.visits)} of {part.count} executions"


def _visit(one: Visit) -> dict[str, str]:
    has_both = one.before is not None and one.after is not None
    return {
        "step": str(one.step),
        "loops": _loops(one.loops),
        "before": "" if one.before is None else say_number(one.before),
        "after": say_number(one.after) if one.is_kept else "not kept",
        "added": say_number((one.after or 0.0) - (one.before or 0.0)) if has_both else "",
    }


def _influence(seen: Look, one: Influence) -> dict[str, object]:
    return {
        "line": seen.statements[one.number].line if one.number >= 0 else "",
        "loops": _loops(one.loops),
        "part": _part(one.part) + ("" if one.number >= 0 else ", which the kernel does not read"),
        "kernel": say_number(one.kernel),
        "reference": say_number(one.reference),
        "differs": one.differs,
    }


def _about_influences(influences: Iterable[Influence]) -> str:
    found = list(influences)
    count = sum(one.differs for one in found)
    return (
        "By how much the element changes if only this part of the input becomes 0. "
        f"Kernel and reference differ in {count} of {count_of(len(found), 'part')}."
    )


def _about_steps(seen: Look) -> str:
    left = seen.total_steps - len(seen.steps)
    text = (
        "Move with the buttons, the slider and its arrow keys. "
        "Orange frames are written, dashed blue ones read."
    )
    if left:
        text += (
            f" Of {seen.total_steps:,} steps {left:,} are left out: of each loop the first two iterations "
            "and the last one are shown."
        )
    cut = [one.name for one in seen.buffers if one.extents != one.shape and one.scope != "global"]
    return f"{text} Only a part of {', '.join(cut)} is shown." if cut else text


def _about_memory(seen: Look) -> str:
    return (
        f"{_bytes_of(seen, 'shared'):,} bytes of shared memory, {_bytes_of(seen, 'fragment'):,} of "
        "registers. A tile is in use from the first step that writes it to the last that reads it."
    )


def _parts(parts: Iterable[Part]) -> str:
    return ", ".join(map(_part, parts))


def _part(part: Part) -> str:
    ranges = (
        str(at) if size == 1 else f"{at}:{at + size}"
        for at, size in zip(part.starts, part.extents, strict=True)
    )
    return f"{part.buffer}[{', '.join(ranges)}]"


def _loops(loops: Loops) -> str:
    return ", ".join(f"{name}={value}" for name, value in loops)
