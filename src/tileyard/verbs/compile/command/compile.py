"""``tileyard compile`` builds the configs of a kernel for any target, and runs none of them; ``tileyard
inspect`` shows what was built, and ``tileyard run-artifact`` runs it.
"""

from pathlib import Path
from typing import Annotated, Unpack

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import DEVICES, Emit, parse_kernel
from tileyard.show.options import Option
from tileyard.show.typed import AsJson, KernelName
from tileyard.show.values import Names, read_names
from tileyard.verbs.compile.options import CompileOptions, start_compile


def compile_configs(
    kernel: KernelName,
    *,
    resources: Annotated[
        bool,
        typer.Option("--resources", help="Registers, shared memory and occupancy."),
    ] = False,
    emit: Emit,
    json: AsJson = False,
    **options: Unpack[CompileOptions],
) -> int:
    """Build configs of a kernel for a target, on this machine's CPUs alone: no device is needed.

    What is built is kept, and is not built again; tileyard inspect shows it, and --emit prints the code
    generated for the first config. --pipeline is for GPU loops: tilelang, tileyard, or one that `tileyard
    passes` lists. With -o it is packed with inputs and reference results: tileyard test --from FILE checks it
    where the device is, with no source and no compiler.

    Exit status: 0 all that fit the device were built, 1 some were not or none fits, 2 bad usage, 130
    interrupted.
    """
    from tileyard.base.model import Outcome
    from tileyard.show.console import Console
    from tileyard.show.opening import load_settings, print_json
    from tileyard.show.session import carry_out
    from tileyard.targets.registry import BUILT_IN, make_target
    from tileyard.verbs.tune.command.session import emit_text
    from tileyard.verbs.tune.view.compiled import print_compiled
    from tileyard.verbs.tune.view.progress import StudyLayout

    file, name = parse_kernel(kernel)
    if emit is not None and json:
        raise UsageError("--emit and --json both print on standard output: choose one")
    start = start_compile(str(file), name, options)
    settings = load_settings()
    if start.target.partition(":")[0] in BUILT_IN:
        # An invalid name is refused before anything starts.
        make_target(start.target, {})
    console = Console(stderr=json or emit is not None)
    result = carry_out(start, settings, console, StudyLayout(tells_ends=json))
    if json:
        print_json(result)
    else:
        print_compiled(console, result, settings.home, with_report=resources)
        if result.bundle:
            size = Path(result.bundle).stat().st_size
            console.print(f"{result.bundle}: {size} bytes", soft_wrap=True, highlight=False)
    built = [one.build for one in result.configs if one.outcome is Outcome.PASSED]
    if emit is not None and built:
        emit_text(built[0], emit, settings.home, result.lines)
    return result.exit_status


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


def run_artifact(  # noqa: PLR0913 - options, by keyword only
    trial: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRIAL", help="A trial's id, or its run key or build key."),
    ] = None,
    *,
    devices: Annotated[
        Names,
        Option(DEVICES, metavar="ID", flags=("--devices", "--device")),
    ] = None,
    objects: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="The object store; by default the one of the data directory."
        ),
    ] = "",
    batch: Annotated[
        str, typer.Option(metavar="FILE|DIGEST", help="Run this batch, as a queue receives it.")
    ] = "",
    environment: Annotated[
        str, typer.Option(metavar="DIGEST", help="Digest that the passed environment must have.")
    ] = "",
    read_token: Annotated[
        str, typer.Option(metavar="NAME", help="Check that this token file of doctor can be read.")
    ] = "",
) -> int:
    """Run built artifacts on a device. Never builds; inputs are found by content.

    One device is named, as in --devices $TASK_DEVICE. Queues that append --device ID to a command name it so.

    Every case is answered by one line TILEYARD_RESULT {...} as it ends, and the batch by one line
    TILEYARD_BATCH {...}. A case that crashes or hangs ends its own process only.

    Exit status: 0 all well, 1 a case failed, 2 bad usage, 3 infrastructure only.
    """
    if sum(map(bool, (trial, batch, read_token))) != 1:
        raise UsageError("run-artifact takes trials, or --batch, or --read-token")
    named = read_names(devices)
    if len(named) > 1:
        raise UsageError("--devices is given twice, and artifacts run on one device")
    device = next(iter(named), "")
    from tileyard.engine.foreign_queue.far_side import run_submitted
    from tileyard.show.opening import load_settings
    from tileyard.verbs.compile.command.artifact_session import (
        answer_token,
        print_line,
        run_by_hand,
    )

    folder = Path(objects).absolute() if objects else load_settings().home / "objects"
    if read_token:
        return answer_token(read_token, folder)
    if batch:
        return run_submitted(batch, folder, device, environment, print_line)
    return run_by_hand(trial or [], folder, device)
