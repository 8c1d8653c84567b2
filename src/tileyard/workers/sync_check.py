"""Checks the synchronization of a kernel: elaborates it, makes its inputs, and has its blocks run."""

from tileyard.check.blocks import check_program
from tileyard.check.suppressions import sieve
from tileyard.errors import KernelFault, UsageError
from tileyard.frontend.found import Found, lower_config
from tileyard.frontend.parameters import Arguments
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.measure.inputs import make_inputs
from tileyard.model import SourceLine
from tileyard.workers.protocol import SyncChecked


def check_kernel(found: Found, arguments: Arguments, config: Arguments) -> SyncChecked:
    """Check one config. Raises what elaborating it raises, and UsageError where it fails by itself."""
    made = lower_config(found, arguments, config)
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
    sieved = sieve(checked.findings, lines)
    return SyncChecked(
        kernel=found.name,
        config=dict(config),
        blocks=checked.blocks,
        grid=checked.grid,
        findings=sieved.findings,
        unchecked=(),
        suppressed=sieved.suppressed,
        unused=sieved.unused,
    )


def _place(where: SourceLine | None, message: str) -> str:
    return message if where is None else f"{where.file}:{where.line}: {message}"
