"""``tileyard inspect``: shows what was built, in every readable form."""

from typing import Annotated

import typer

from tileyard.show.typed import AsJson


def inspect(  # noqa: PLR0913 - options, by keyword only
    artifact: Annotated[
        str,
        typer.Argument(
            metavar="ARTIFACT",
            help="A build key or the beginning of it, a trial, a config's name, or BUNDLE[::CASE].",
        ),
    ],
    *,
    source: Annotated[
        bool, typer.Option("--source", help="The generated code that the compiler received.")
    ] = False,
    launch: Annotated[
        bool,
        typer.Option("--launch-record", help="The launch record: sizes, arguments, descriptors."),
    ] = False,
    resources: Annotated[
        bool, typer.Option("--resources", help="Registers, shared memory and occupancy.")
    ] = False,
    ptx: Annotated[
        bool, typer.Option("--ptx", help="PTX, compiled again by NVRTC from the stored source.")
    ] = False,
    sass: Annotated[
        bool, typer.Option("--sass", help="Machine code, disassembled by NVIDIA's nvdisasm.")
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="The compiler's messages.")] = False,
    json: AsJson = False,
) -> int:
    """Show an artifact: its sources, its compiler, its files. Without an option, a summary; with --json
    the manifest and the target's own details.

    An artifact is named as tileyard compile --resources names it. Of a bundle that holds several cases
    the list is shown; x.tyb::CASE is one of them. A bundle for another machine can be looked into as well.

    Exit status: 0 shown, 2 no such artifact, none of this in it, or a missing tool.
    """
    from tileyard.verbs.compile.command.inspect_session import Part, show

    wanted: dict[Part, bool] = {
        "source": source,
        "launch": launch,
        "resources": resources,
        "ptx": ptx,
        "sass": sass,
        "log": log,
    }
    return show(artifact, [name for name, is_wanted in wanted.items() if is_wanted], as_json=json)
