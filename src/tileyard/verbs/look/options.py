"""The options of ``look``."""

from typing import Annotated, TypedDict

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    ArgumentValues,
    ConfigValues,
    OutputFile,
    PythonLimit,
    Reference,
    ShapeName,
    TimeLimitOption,
)
from tileyard.show.options import Home, Option
from tileyard.show.values import Time
from tileyard.verbs.check.options import PlannedBy
from tileyard.verbs.tune.options import InputsName

USUAL_LIMIT_S = 10


def read_block(text: str, option: str) -> tuple[int, ...]:
    """A block's place in the grid. Raises UsageError."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(
            f"{option} {text}: whole numbers, blockIdx.x first, as {option} 3,0"
        ) from None


class LookOptions(TypedDict, total=False):
    """The options of ``look``."""

    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValues
    block: Annotated[
        str,
        Option(
            "The block, blockIdx.x first; by default the one with the first wrong element.",
            metavar="X[,Y[,Z]]",
            default="",
            read=read_block,
        ),
    ]
    pipeline: PlannedBy
    reference: Reference
    inputs: InputsName
    output: OutputFile
    limit: Annotated[Time, TimeLimitOption(default=f"{USUAL_LIMIT_S}s")]
    python_limit: PythonLimit
    home: Home
