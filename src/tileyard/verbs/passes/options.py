"""The options of ``passes``."""

from typing import Annotated, TypedDict

from tileyard.show.kernel_options import (
    AnyTarget,
    ArgumentValues,
    ConfigValue,
    PipelineName,
    PythonLimit,
    ShapeName,
    TimeLimit,
)
from tileyard.show.options import Switch, Text


class PassesOptions(TypedDict, total=False):
    """The options of ``passes``."""

    target: AnyTarget
    pipeline: PipelineName
    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValue
    after: Annotated[str, Text("Show the Program after this pass only.", metavar="PASS")]
    diff: Annotated[bool, Switch("Show what each pass changes, not whole Programs.")]
    verify: Annotated[
        bool, Switch("Run what each pass makes, and compare it with the kernel as written.")
    ]
    time: Annotated[bool, Switch("Show how many milliseconds each pass takes.")]
    limit: TimeLimit
    python_limit: PythonLimit
