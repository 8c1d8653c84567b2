"""Checks the asynchronous copies of a kernel: runs blocks in the asynchronous meaning, and says what it found in words."""

import math

from tileyard.errors import KernelFault, UsageError
from tileyard.frontend.found import Found, lower_config
from tileyard.frontend.parameters import Arguments
from tileyard.ir.asynchronous import Hazard, LateRun, Moment
from tileyard.ir.nodes import Await, Issue, Roles
from tileyard.ir.specs import evaluate_size, scalar_params, tensor_specs
from tileyard.ir.walk import walk
from tileyard.measure.inputs import make_inputs
from tileyard.model import SourceLine
from tileyard.workers.protocol import Finding, SyncChecked


def check_kernel(found: Found, arguments: Arguments, config: Arguments) -> SyncChecked:
    """Check one config. Raises what elaborating it raises, and UsageError where it fails by itself."""
    made = lower_config(found, arguments, config)
    lowered = made.lowered
    if lowered is None:
        refusal = made.kernel.refusal
        raise UsageError(refusal.message if refusal else "it has no Program")
    program, lines = lowered.written, lowered.written_lines
    kinds = {type(stmt) for stmt in walk(program.body)}
    unchecked = [_place(each.where, each.message) for each in lowered.given_up]
    if kinds & {Roles, Await}:
        unchecked.append("barriers and the roles that wait at them are not checked yet")
    if Issue not in kinds:
        unchecked.append("it has no copies by cp.async, and others are not checked yet")
    grid = math.prod(evaluate_size(axis.extent, made.numbers) for axis in program.grid)
    may_check = Issue in kinds and not lowered.given_up and not kinds & {Roles, Await}
    hazards: list[Hazard] = []
    count = 0
    if may_check:
        inputs = make_inputs(tensor_specs(program, made.integers))
        scalars = [made.numbers[var.name] for var in scalar_params(program)]
        run = LateRun(program, inputs, scalars, corners_only=True)
        try:
            run.grid()
        except KernelFault as fault:
            if not run.hazards:  # else it is the poison that was used
                raise UsageError(str(fault)) from None
        hazards, count = list(run.hazards.values()), run.count
    return SyncChecked(
        kernel=found.name,
        config=dict(config),
        blocks=count,
        grid=grid,
        findings=tuple(describe_hazard(hazard, lines) for hazard in hazards),
        unchecked=tuple(unchecked),
    )


def describe_hazard(hazard: Hazard, lines: dict[int, SourceLine]) -> Finding:
    """A hazard in words, by the lines of the user's file."""
    access, issue = lines.get(hazard.access.number), lines.get(hazard.issue.number)
    wait = lines.get(hazard.left_by.moment.number) if hazard.left_by is not None else None
    copy = f"the copy of {_at(issue, hazard.issue)}"
    match hazard.kind:
        case "read before arrival":
            said = f"{hazard.buffer} is read{_when(hazard.access)} before {copy} has arrived"
        case "overwritten in flight":
            said = (
                f"{hazard.buffer} is written{_when(hazard.access)} while {copy} is in flight to it"
            )
        case "source changed in flight":
            said = (
                f"{hazard.buffer} is written{_when(hazard.access)} while {copy} may still read it"
            )
    return Finding(
        message=said,
        fix=_describe_fix(hazard, wait),
        buffer=hazard.buffer,
        block=hazard.block,
        access=access,
        issue=issue,
        wait=wait,
    )


def _describe_fix(hazard: Hazard, wait: SourceLine | None) -> str:
    left = hazard.left_by
    if not hazard.committed:
        return "it is in no group: T.ptx_commit_group() is missing before the wait"
    if left is None or left.most is None:
        return f"no wait comes between: T.ptx_wait_group({hazard.most}) is missing, or the stage is wrong"
    return (
        f"the wait of {_at(wait, left.moment)} leaves {left.count} groups: T.ptx_wait_group({left.most}) would cover "
        "it, or the stage is wrong"
    )


def _at(where: SourceLine | None, moment: Moment) -> str:
    line = "an unknown line" if where is None else f"line {where.line}"
    return f"{line}{_when(moment)}"


def _when(moment: Moment) -> str:
    values = ", ".join(f"{name}={value}" for name, value in moment.loops)
    return f" at {values}" if values else ""


def _place(where: SourceLine | None, message: str) -> str:
    return message if where is None else f"{where.file}:{where.line}: {message}"
