"""The options of ``trace`` for a kernel."""

from typing import TypedDict

from tileyard.show.kernel_options import (
    ArgumentValues,
    ConfigValue,
    PythonLimit,
    ShapeName,
    TimeLimit,
)
from tileyard.show.options import complete
from tileyard.show.values import refuse_unused
from tileyard.verbs.check.options import PlannedBy


class TraceOptions(TypedDict, total=False):
    """The options of ``trace`` for a kernel."""

    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValue
    pipeline: PlannedBy
    limit: TimeLimit
    python_limit: PythonLimit


def refuse_for_run(given: TraceOptions) -> None:
    """Raise NoEffectError for options of a kernel that are given with a run."""
    usual = complete(TraceOptions, {})
    changed = {f"--{name}".replace("_", "-"): value != usual[name] for name, value in given.items()}
    refuse_unused("for a run: it is for FILE::KERNEL", changed)
