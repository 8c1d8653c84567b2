"""The options of ``check``."""

from typing import Annotated, TypedDict

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    AllConfigs,
    ArgumentValues,
    ConfigValues,
    PythonLimit,
    ShapeName,
    TimeLimit,
)
from tileyard.show.options import Home, Option, Switch

DEFAULT_ARCHITECTURE = "sm_90a"


def read_pipeline(text: str, option: str) -> str:
    """The architecture for which TileLang is to plan; empty for the kernel as written."""
    name, colon, architecture = text.partition(":")
    if text == "written":
        return ""
    if name != "tilelang" or (colon and not architecture):
        raise UsageError(f"{option} {text}: either written or tilelang[:ARCH], as tilelang:sm_80")
    return architecture or DEFAULT_ARCHITECTURE


PlannedBy = Annotated[
    str,
    Option(
        "How the kernel is planned: written, or as TileLang's passes do it, tilelang[:ARCH].",
        metavar="PIPELINE",
        default="written",
        read=read_pipeline,
    ),
]


class CheckOptions(TypedDict, total=False):
    """The options of ``check``."""

    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValues
    all_configs: AllConfigs
    pipeline: PlannedBy
    limit: TimeLimit
    python_limit: PythonLimit
    timeline: Annotated[
        bool,
        Switch(
            "Show what happened before each mistake; on a terminal it is shown for the first one."
        ),
    ]
    home: Home
