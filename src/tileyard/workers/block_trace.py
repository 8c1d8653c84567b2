"""Runs one block of a kernel in the asynchronous meaning, on inputs of its own, and records its steps."""

from tileyard.base.errors import UsageError
from tileyard.frontend.found import Found
from tileyard.ir.specs import evaluate_size, scalar_params, tensor_specs
from tileyard.measure.inputs import make_inputs
from tileyard.sync.block_spans import MOST_STEPS, OneBlock, list_spans
from tileyard.workers.pass_steps import lower_whole
from tileyard.workers.protocol import BlockTraced, TraceBlock
from tileyard.workers.sync_check import require_small


def trace_block(found: Found, request: TraceBlock) -> BlockTraced:
    """Elaborate one config and run its middle block. Raises as elaborating does, UsageError for an empty grid
    or large tensors, and KernelFault if the kernel fails by itself.
    """
    made, lowered = lower_whole(found, request, request.architecture)
    program = lowered.written
    specs = tensor_specs(program, made.integers)
    require_small(program, specs)
    grid = {axis.var.name: evaluate_size(axis.extent, made.integers) for axis in program.grid}
    if 0 in grid.values():
        raise UsageError("its grid is empty")
    place = {axis: extent // 2 for axis, extent in grid.items()}
    scalars = [made.numbers[var.name] for var in scalar_params(program)]
    run = OneBlock(program, make_inputs(specs), scalars, place)
    run.grid()
    return BlockTraced(
        kernel=found.name,
        config=dict(request.config),
        grid=grid,
        place=place,
        spans=tuple(list_spans(run.steps, lowered.written_lines)),
        mistakes=len(run.hazards),
        is_whole=len(run.steps) < MOST_STEPS,
    )
