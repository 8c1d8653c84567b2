"""``tileyard trace``: where the time of a run went, and the order of what a block of a kernel does."""

from typing import Annotated, TypedDict, Unpack

import typer

from tileyard.show.kernel_options import (
    ArgumentValues,
    ConfigValue,
    PrintedOption,
    PythonLimit,
    ShapeName,
    TimeLimit,
    parse_kernel,
    require_one,
)
from tileyard.show.options import complete, read_options
from tileyard.show.typed import AsJson
from tileyard.show.values import FilePath, refuse_unused
from tileyard.verbs.check.options import PlannedBy


class TraceOptions(TypedDict, total=False):
    """The options of ``trace`` for a kernel."""

    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValue
    pipeline: PlannedBy
    limit: TimeLimit
    python_limit: PythonLimit


def trace(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[RUN|FILE::KERNEL]",
            help="A run's name, or the beginning of it, by default the last run; or a kernel.",
        ),
    ] = "",
    *,
    output: Annotated[
        FilePath, PrintedOption("Also write trace events, for https://ui.perfetto.dev.")
    ],
    json: AsJson = False,
    **options: Unpack[TraceOptions],
) -> int:
    """Show where the time of a run went: for each compile worker and device the shares of its time, and the
    critical path.

    With -o the timeline is also written as trace events, which open in https://ui.perfetto.dev: a thread per
    compile worker and device, arrows along the critical path, and the numbers of cases that are being built
    and that are ready. With -o - only these events are printed. A run that goes on, or was killed, is shown
    up to its last event.

    Of a kernel, the middle block of its first config runs in the meaning of tileyard check: a thread per role
    and per asynchronous copy or product in flight, in the order of the steps. No durations are known. With
    --pipeline tilelang[:ARCH] it runs as TileLang's passes plan it, by default for sm_90a.

    --json prints the same as data.

    Exit status: 0 shown, 2 there is no such run, a kernel that cannot be run, or bad usage.
    """
    from tileyard.verbs.trace.view import block, run

    if output == "-":
        refuse_unused("with -o -: only trace events are printed", {"--json": json})
    if "::" not in subject and not subject.endswith(".py"):
        refuse_for_run(options)
        return run.show_run(subject, output, as_json=json)
    file, name = parse_kernel(subject)
    values = read_options(TraceOptions, complete(TraceOptions, options))
    require_one(values["config"], "trace")
    return block.show_block(file, name, values, output, as_json=json)


def refuse_for_run(given: TraceOptions) -> None:
    """Raise NoEffectError for options of a kernel that are given with a run."""
    usual = complete(TraceOptions, {})
    changed = {f"--{name}".replace("_", "-"): value != usual[name] for name, value in given.items()}
    refuse_unused("for a run: it is for FILE::KERNEL", changed)
