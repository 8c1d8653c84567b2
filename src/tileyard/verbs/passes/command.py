"""``tileyard passes``: shows the result of each pass of a pipeline on a kernel."""

from typing import Annotated, TypedDict, Unpack

from tileyard.show.kernel_options import (
    AnyTarget,
    ArgumentValues,
    ConfigValue,
    PipelineName,
    PythonLimit,
    ShapeName,
    TimeLimit,
    parse_kernel,
    require_one,
)
from tileyard.show.options import Switch, Text, complete, fill, read_options
from tileyard.show.typed import AsJson, KernelName


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


def passes(kernel: KernelName, *, json: AsJson = False, **options: Unpack[PassesOptions]) -> int:
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
    from tileyard.verbs.tune.options import make_request

    file, name = parse_kernel(kernel)
    values = read_options(PassesOptions, complete(PassesOptions, options))
    require_one(values["config"], "passes")
    wanted = fill(
        Wanted,
        values,
        chosen=open_pipeline(values["target"], values["pipeline"]),
        is_checked=values["verify"],
        is_diff=values["diff"],
        is_timed=values["time"],
        as_json=json,
    )
    return show_passes(file, make_request(name, values, trials=1), wanted)
