"""Checks the synchronization of a kernel: elaborates it, makes its inputs, and has its blocks run."""

from collections.abc import Sequence

from msgspec.structs import replace

from tileyard.check.blocks import check_program
from tileyard.check.dependences import find_reordered
from tileyard.check.findings import Finding, describe_race
from tileyard.check.recorder import Form
from tileyard.errors import KernelFault, UsageError
from tileyard.frontend.found import Found, lower_config
from tileyard.frontend.parameters import Arguments
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.measure.inputs import make_inputs
from tileyard.model import SourceLine
from tileyard.workers.protocol import SyncChecked


def check_kernel(
    found: Found, arguments: Arguments, config: Arguments, architecture: str = ""
) -> SyncChecked:
    """Check one config, with an ``architecture`` as it is planned for that, and against what is written.

    Raises what elaborating it raises, and UsageError where it fails by itself.
    """
    made = lower_config(found, arguments, config, architecture=architecture)
    lowered = made.lowered
    if lowered is None:
        refusal = made.kernel.refusal
        raise UsageError(refusal.message if refusal else "it has no Program")
    program, lines = lowered.written, lowered.written_lines
    unchecked = tuple(_place(each.where, each.message) for each in lowered.given_up)
    if unchecked:  # without these nothing can be said of the others
        return SyncChecked(
            kernel=found.name,
            config=dict(config),
            blocks=0,
            grid=0,
            findings=(),
            unchecked=unchecked,
        )
    inputs = make_inputs(tensor_specs(program, made.integers))
    scalars = [made.numbers[var.name] for var in scalar_params(program)]
    try:
        checked = check_program(program, lines, inputs, scalars)
    except KernelFault as fault:
        raise UsageError(str(fault)) from None
    reordered: Sequence[Finding] = ()
    hazards = checked.findings
    if architecture:
        hazards = tuple(replace(each, fix=f"in TileLang's plan: {each.fix}") for each in hazards)
        written = lower_config(found, arguments, config).lowered
        if written is not None:
            before = Form(written.written, written.written_lines)
            reordered = find_reordered(before, Form(program, lines), inputs, scalars)
    return SyncChecked(
        kernel=found.name,
        config=dict(config),
        blocks=checked.blocks,
        grid=checked.grid,
        findings=(*reordered, *map(describe_race, lowered.races), *hazards),
        unchecked=(),
    )


def _place(where: SourceLine | None, message: str) -> str:
    return message if where is None else f"{where.file}:{where.line}: {message}"
