"""The options of ``look``."""

from typing import Annotated, TypedDict

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    ArgumentValues,
    ConfigValue,
    OutputOption,
    PythonLimit,
    Reference,
    ShapeName,
    TimeLimitOption,
)
from tileyard.show.options import Home, Option
from tileyard.show.values import FilePath, Time
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
    config: ConfigValue
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
    output: Annotated[
        FilePath,
        OutputOption("The page to write; by default KERNEL.html in the working directory."),
    ]
    limit: Annotated[Time, TimeLimitOption(default=f"{USUAL_LIMIT_S}s")]
    python_limit: PythonLimit
    home: Home
