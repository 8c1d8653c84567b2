"""``tileyard trace``: where the time of a run went, by compile worker and device."""

from typing import Annotated

import typer

from tileyard.show.kernel_options import OutputFile
from tileyard.show.typed import AsJson


def trace(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="A run's name, or the beginning of it; by default the last run.",
        ),
    ] = "",
    *,
    output: OutputFile,
    json: AsJson = False,
) -> int:
    """Show where the time of a run went: for each compile worker and device the shares of its time, and the
    critical path.

    With -o the timeline is also written as trace events, which open in https://ui.perfetto.dev: a thread per
    compile worker and device, arrows along the critical path, and the numbers of cases that are being built
    and that are ready. --json prints the timeline. A run that goes on, or was killed, is shown up to its last
    event.

    Exit status: 0 shown, 2 there is no such run, or bad usage.
    """
    import msgspec

    from tileyard.show.opening import load_settings, present, write_file
    from tileyard.show.timeline import fold_timeline
    from tileyard.store.events import find_run_file, read_events
    from tileyard.verbs.records.view.trace import describe_trace, print_timeline

    events = list(read_events(find_run_file(load_settings().home, run)))
    timeline = fold_timeline(events)
    if output:
        write_file(output, msgspec.json.encode(describe_trace(timeline, events)))
    present(timeline, json, print_timeline)
    return 0
