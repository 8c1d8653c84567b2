"""``tileyard tune``: find the fastest config of a kernel."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from tileyard.cli.values import parse_bytes, parse_duration_s, parse_pairs, parse_value
from tileyard.errors import UsageError
from tileyard.model import INFRASTRUCTURE, CheckPolicy, Limits
from tileyard.report.progress import Progress
from tileyard.report.study import print_study
from tileyard.service.client import StudyClient
from tileyard.service.messages import StartTune
from tileyard.settings import read_settings
from tileyard.tuning.request import DEFAULT_TRIALS, TuneRequest


def tune(  # noqa: PLR0913 - options, by keyword only
    kernel: Annotated[str, typer.Argument(metavar="FILE[::NAME]", help="Where the kernel is.")],
    *,
    arg: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An argument of the kernel.")
    ] = None,
    shape: Annotated[str, typer.Option(help="A named set of arguments of the kernel.")] = "",
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,C", help="Values to try for one parameter."),
    ] = None,
    reference: Annotated[
        str, typer.Option(help="A function of the file to check results against.")
    ] = "",
    check: Annotated[bool, typer.Option(help="Compare results with the reference.")] = True,
    target: Annotated[str, typer.Option(help="What to compile for.")] = "cpu",
    device: Annotated[str, typer.Option(help="cpu, or cpu:cores=0-3 for some cores.")] = "cpu",
    trials: Annotated[int, typer.Option(min=1, help="How many configs to try.")] = DEFAULT_TRIALS,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Start no new config after 60s, 5m, ...")
    ] = "",
    run_limit: Annotated[
        str, typer.Option(metavar="TIME", help="End a config that runs longer.")
    ] = "60s",
    build_limit: Annotated[
        str, typer.Option(metavar="TIME", help="End a build that takes longer.")
    ] = "120s",
    memory_limit: Annotated[
        str, typer.Option(metavar="SIZE", help="Address space of a running config.")
    ] = "8GiB",
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Use what earlier runs measured, or not.")
    ] = True,
    overlap: Annotated[bool, typer.Option(help="Build while other configs run.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Find the fastest config of a kernel: every config is built, checked and timed.

    The kernel is a function decorated with @tileyard.kernel, @tilelang.jit or
    @tilelang.autotune. Its reference is a NumPy or torch function: it gets the kernel's inputs in
    parameter order and returns the outputs, or writes them in place.

    Exit status: 0 a best config was found, 1 none passed, 2 bad usage, 3 infrastructure only,
    130 interrupted.
    """
    file, _, name = kernel.partition("::")
    if not Path(file).is_file():
        raise UsageError(f"there is no file {file}")
    request = TuneRequest(
        kernel=name,
        arguments={k: parse_value(v) for k, v in parse_pairs(arg or (), "--arg").items()},
        shape=shape,
        overrides={
            key: tuple(parse_value(part) for part in text.split(","))
            for key, text in parse_pairs(config or (), "--config").items()
        },
        reference=reference,
        trials=trials,
        budget_s=parse_duration_s(budget) if budget else None,
        check=CheckPolicy(enabled=check),
        limits=Limits(
            run_s=parse_duration_s(run_limit),
            build_s=parse_duration_s(build_limit),
            memory_bytes=parse_bytes(memory_limit),
        ),
    )
    start = StartTune(
        request=request,
        target=target,
        device=device,
        file=str(Path(file).absolute()),
        reuse=resume,
        overlap=overlap,
    )
    return run(start, as_json=json)


def run(start: StartTune, *, as_json: bool) -> int:
    """Carry out the run, show it, and return the exit status."""
    settings = read_settings(os.environ, Path.cwd())
    client = StudyClient(start, settings)
    console = Console(stderr=as_json)
    with stop_on_interrupt(client), Progress(console) as progress:
        result = client.run(progress)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        print_study(console, result, settings.home)
    if result.reason == "interrupted":
        return 130
    if result.best is not None:
        return 0
    ended = {trial.outcome for trial in result.trials}
    return 3 if ended and ended <= INFRASTRUCTURE else 1


@contextlib.contextmanager
def stop_on_interrupt(client: StudyClient) -> Iterator[None]:
    """Ctrl-C once: what runs is finished; twice: everything is ended at once."""
    pressed = 0

    def press(_number: int, _frame: object) -> None:
        nonlocal pressed
        pressed += 1
        client.stop(now=pressed > 1)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
