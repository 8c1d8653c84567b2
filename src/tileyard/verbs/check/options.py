"""The options of ``check``."""

from typing import TYPE_CHECKING, Annotated, TypedDict

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    PIPELINE,
    AllConfigs,
    ArgumentValues,
    ConfigValues,
    PythonLimit,
    ShapeName,
    TimeLimit,
    read_arguments,
)
from tileyard.show.options import Home, Option, Switch
from tileyard.show.values import read_choices

if TYPE_CHECKING:
    from tileyard.verbs.tune.result.records import TuneRequest

DEFAULT_ARCHITECTURE = "sm_90a"


class CheckOptions(TypedDict, total=False):
    """The options of ``check``."""

    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValues
    all_configs: AllConfigs
    pipeline: Annotated[str, Option(PIPELINE, metavar="PIPELINE", default="written")]
    limit: TimeLimit
    python_limit: PythonLimit
    timeline: Annotated[
        bool,
        Switch(
            "Show what happened before each mistake; on a terminal it is shown for the first one."
        ),
    ]
    home: Home


def read_check(kernel: str, options: CheckOptions) -> "TuneRequest":
    """The configs to check of a kernel, or of each one of the file if it has no name. Raises UsageError."""
    from tileyard.verbs.tune.options.tune import MOST_TRIALS
    from tileyard.verbs.tune.result.records import TuneRequest

    chosen = read_choices(options["config"])

    return TuneRequest(
        kernel=kernel,
        arguments=read_arguments(options["arg"]),
        shape=options["shape"],
        overrides=chosen,
        trials=MOST_TRIALS if options["all_configs"] or chosen else 1,
    )


def parse_pipeline(text: str) -> str:
    """The architecture for which TileLang is to plan; empty for the kernel as written."""
    name, colon, architecture = text.partition(":")
    if text == "written":
        return ""
    if name != "tilelang" or (colon and not architecture):
        raise UsageError(f"--pipeline {text}: either written or tilelang[:ARCH], as tilelang:sm_80")
    return architecture or DEFAULT_ARCHITECTURE
