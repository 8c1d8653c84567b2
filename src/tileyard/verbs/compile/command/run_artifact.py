"""``tileyard run-artifact``: runs a built artifact on a device, with only the object store."""

from pathlib import Path
from typing import Annotated

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import DEVICES
from tileyard.show.options import Option
from tileyard.show.values import Names, read_names


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
