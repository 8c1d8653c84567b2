"""What a kernel says of how it is run, where the Program keeps it: schedules of pipelined loops, and layouts."""

from typing import Any

import msgspec

from tileyard.errors import UnsupportedError
from tileyard.frontend.expressions import lower_expr
from tileyard.frontend.scope import Scope
from tileyard.ir import verify_exprs as check
from tileyard.ir.nodes import Buffer, For, Layout
from tileyard.ir.syntax import layout_indices


def with_pipeline(scope: Scope, loop: For, annotations: Any) -> For:  # noqa: ANN401 (TVM's nodes are untyped)
    """A serial ``loop`` with the pipeline that its annotations ask for.

    TileLang ignores an order without stages, and stages without an order.
    """
    found = msgspec.structs.replace(
        loop,
        kind="pipelined",
        stages=int(annotations.get("num_stages", 0)),
        group=tuple(_numbers(group) for group in annotations.get("tl_pipeline_group", ())),
    )
    if "tl_pipeline_order" in annotations and "tl_pipeline_stage" in annotations:
        order, stage = (_numbers(annotations[f"tl_pipeline_{word}"]) for word in ("order", "stage"))
        found = msgspec.structs.replace(found, order=order, stage=stage)
    try:
        check.schedule(found)
    except check.Broken as broken:
        scope.give_up("Pipelined", f"in which {broken}")
        found = msgspec.structs.replace(found, order=(), stage=(), group=())
    if found.order or found.group or "num_stages" in annotations:
        return found
    depth = scope.depths.get(str(annotations.get("tl.ws_op_id", "")), 0)
    return msgspec.structs.replace(loop, kind="pipelined", stages=depth) if depth else loop


def read_depths(schedule: Any) -> dict[str, int]:  # noqa: ANN401
    """For each loop that a schedule of roles names, the most versions of a tile that its roles pass on."""
    depths = {str(pipeline.name): int(pipeline.depth) for pipeline in schedule.pipelines}
    return {
        str(one.id): max(depths[str(step.pipeline)] for step in steps)
        for one in schedule.scopes
        if (steps := [s for body in one.bodies.values() for s in body if hasattr(s, "pipeline")])
    }


def _numbers(values: Any) -> tuple[int, ...]:  # noqa: ANN401
    return tuple(map(int, values))


def with_layout(scope: Scope, buffer: Buffer) -> Buffer:
    """``buffer`` with the layout that the kernel annotates for its storage, if there is one."""
    asked = {scope.stored(data): layout for data, layout in scope.layouts}
    return _with_layout(scope, buffer, asked[buffer.name]) if buffer.name in asked else buffer


def _with_layout(scope: Scope, buffer: Buffer, given: Any) -> Buffer:  # noqa: ANN401
    """``buffer`` with a layout of TileLang's, whose expressions are those over its forward variables."""
    inside = Scope()
    *indices, copy = layout_indices(len(buffer.shape))
    variables = list(given.get_forward_vars())
    names = [copy, *indices] if len(variables) > len(indices) else indices
    try:
        for var, name in zip(variables, names, strict=True):
            inside.bind_var(var, name)
        place = tuple(lower_expr(inside, scope.simplify(at)) for at in given.get_forward_index())
        thread = getattr(given, "thread", None)
        layout = Layout(
            place=place,
            thread=None if thread is None else lower_expr(inside, scope.simplify(thread)),
            copies=int(getattr(given, "replicate_size", 1)),
        )
        found = msgspec.structs.replace(buffer, layout=layout)
        check.layout(found)
    except (UnsupportedError, ValueError, check.Broken):
        scope.give_up("annotate_layout", f"of {buffer.name} in another way than the IR says it")
        return buffer
    return found
