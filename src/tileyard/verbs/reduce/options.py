"""The options of ``reduce``."""

from typing import Annotated, TypedDict

from tileyard.show.kernel_options import (
    ArgumentValues,
    ConfigValue,
    PipelineName,
    PythonLimit,
    ShapeName,
    TargetName,
    TimeLimitOption,
)
from tileyard.show.values import Time


class ReduceOptions(TypedDict, total=False):
    """The options of ``reduce``."""

    pipeline: PipelineName
    target: TargetName
    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValue
    limit: Annotated[Time, TimeLimitOption(default="5m")]
    python_limit: PythonLimit
