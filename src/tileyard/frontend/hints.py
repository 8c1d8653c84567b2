"""What a kernel says of how it is run, where the Program keeps it: schedules of pipelined loops."""

from typing import Any

import msgspec

from tileyard.frontend.scope import Scope
from tileyard.ir import verify_exprs as check
from tileyard.ir.nodes import For


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
    is_plain = not (found.order or found.group or "num_stages" in annotations)
    return loop if is_plain else found


def _numbers(values: Any) -> tuple[int, ...]:  # noqa: ANN401
    return tuple(map(int, values))
