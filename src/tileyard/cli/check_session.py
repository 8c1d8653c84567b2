"""A check of the synchronization of kernels, as the command line shows it."""

import asyncio
from pathlib import Path
from typing import Literal

import msgspec

import tileyard
from tileyard.cli.opening import load_settings, print_json
from tileyard.engine.authors import WorkerAuthor
from tileyard.errors import KernelFileError, TileyardError, UsageError
from tileyard.frontend.declare import KernelInfo
from tileyard.model import Record, Side
from tileyard.report.console import outliving_readers
from tileyard.report.sarif import describe_sarif
from tileyard.report.sync import NotChecked, SyncReport, describe_check
from tileyard.report.words import make_visible
from tileyard.tuning.request import TuneRequest
from tileyard.tuning.space import ASK_LIMIT_S, open_space
from tileyard.workers.program_replies import SyncChecked
from tileyard.workers.protocol import CheckSync, DescribeKernels, Failed

Form = Literal["text", "json", "sarif"]


FIRST_GUESS = 64
"""The value of arguments that have none, before the check looks for one that fits."""


class Wanted(Record):
    """The form of the report, the most findings that are shown with their timelines, and the architecture to plan for."""

    form: Form
    timelines: int = 0
    architecture: str = ""


def check_file(file: Path, request: TuneRequest, limit_s: float, wanted: Wanted) -> int:
    """Check the first config of a kernel, of each one of the file where none is named.

    Raises UsageError, also for a kernel that is named and cannot be elaborated.
    """
    question = CheckSync(
        kernel="",
        arguments={},
        config={},
        architecture=wanted.architecture,
        with_timeline=wanted.timelines > 0,
    )
    report = asyncio.run(_check(file, request, limit_s, question))
    match wanted.form:
        case "json":
            print_json(report)
        case "sarif":
            print_json(describe_sarif(report, Path.cwd(), f"{tileyard.__version__}"))
        case "text":
            with outliving_readers():
                for line in describe_check(report, wanted.timelines):
                    print(make_visible(line))
    return report.exit_status


async def _check(
    file: Path, request: TuneRequest, limit_s: float, question: CheckSync
) -> SyncReport:
    settings = load_settings()
    author = WorkerAuthor(file, settings.home, settings.cores, Side(name=""))
    try:
        wanted = await _choose(author, file, request)
        done: list[SyncChecked] = []
        failed: list[NotChecked] = []
        for one in wanted:
            try:
                done.append(await _check_kernel(author, one, limit_s, question))
            except TileyardError as error:
                if len(wanted) == 1:
                    raise
                failed.append(NotChecked(kernel=one.kernel, reason=str(error)))
    finally:
        await author.close()
    return SyncReport(file=str(file), kernels=tuple(done), not_checked=tuple(failed))


async def _choose(author: WorkerAuthor, file: Path, request: TuneRequest) -> list[TuneRequest]:
    """The request for each kernel that is meant, with what is given of its own parameters."""
    if request.kernel:
        return [request]
    described = await author.ask(DescribeKernels(), ASK_LIMIT_S)
    if isinstance(described, Failed):
        raise KernelFileError(described.message)
    kernels = described.kernels
    if len(kernels) < 2:
        return [request]
    for key in (*request.arguments, *request.overrides):
        if not any(_takes(info, key) for info in kernels):
            raise UsageError(f"no kernel of {file} has a parameter {key!r}")
    return [_narrow(request, info) for info in kernels]


def _narrow(request: TuneRequest, info: KernelInfo) -> TuneRequest:
    return msgspec.structs.replace(
        request,
        kernel=info.name,
        arguments={k: value for k, value in request.arguments.items() if _takes(info, k)},
        overrides={k: values for k, values in request.overrides.items() if _takes(info, k)},
    )


def _takes(info: KernelInfo, key: str) -> bool:
    return not info.parameters or key in info.parameters


async def _check_kernel(
    author: WorkerAuthor, request: TuneRequest, limit_s: float, question: CheckSync
) -> SyncChecked:
    space = await open_space(author, request, guess=FIRST_GUESS)
    asked = msgspec.structs.replace(
        question,
        kernel=space.kernel,
        arguments=space.arguments,
        config=space.configs[0],
        guessed=space.guessed,
    )
    reply = await author.ask(asked, limit_s)
    if isinstance(reply, Failed):
        raise UsageError(f"{space.kernel} cannot be checked: {reply.message}")
    return reply
