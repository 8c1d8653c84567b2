"""``tileyard passes``: shows the result of each pass of a pipeline on a kernel."""

from typing import Annotated

import typer

from tileyard.show.kernel_options import (
    AnyTarget,
    ArgumentValues,
    ConfigValues,
    PipelineName,
    PythonLimit,
    ShapeName,
    TimeLimit,
    parse_kernel,
    read_arguments,
    read_config,
    read_python_limit,
)
from tileyard.show.typed import AsJson, KernelName
from tileyard.show.values import read_time_s


def passes(  # noqa: PLR0913 - options, by keyword only
    kernel: KernelName,
    *,
    target: AnyTarget = "",
    pipeline: PipelineName = "",
    arg: ArgumentValues = None,
    shape: ShapeName = "",
    config: ConfigValues = None,
    after: Annotated[
        str, typer.Option(metavar="PASS", help="Show the Program after this pass only.")
    ] = "",
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what each pass changes, not whole Programs.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Run what each pass makes, and compare it with the kernel as written."
        ),
    ] = False,
    time: Annotated[
        bool, typer.Option("--time", help="Show how many milliseconds each pass takes.")
    ] = False,
    limit: TimeLimit = "10m",
    python_limit: PythonLimit = None,
    json: AsJson = False,
) -> int:
    """Show the Program of a kernel after each pass of a pipeline, with the lines of the user's file.

    The pipeline is the one for --target, such as cuda:sm_80, unless --pipeline names another one: sm_80,
    sm_90a, none, tilelang, whose plan for the target is one step, or a FILE.toml.

    With --verify each Program runs in an interpreter on the given arguments, preferably small ones: its
    results have to be those of the kernel as it is written, bit for bit, and its synchronization has to be
    right. The pass that breaks something is named.

    Exit status: 0 shown, and nothing is broken; 1 a pass broke something; 2 bad usage, or a kernel that has
    no Program.
    """
    from tileyard.verbs.passes.view import Wanted, open_pipeline, show_passes
    from tileyard.verbs.tune.result.records import TuneRequest

    file, name = parse_kernel(kernel)
    chosen = read_config(config, "passes")
    request = TuneRequest(
        kernel=name, arguments=read_arguments(arg), shape=shape, overrides=chosen, trials=1
    )
    wanted = Wanted(
        chosen=open_pipeline(target, pipeline),
        is_checked=verify,
        after=after,
        is_diff=diff,
        is_timed=time,
        as_json=json,
        python_limit_s=read_python_limit(python_limit),
    )
    return show_passes(file, request, read_time_s("--limit", limit), wanted)
