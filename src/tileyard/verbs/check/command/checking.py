"""A check of the synchronization of kernels: which kernels, and what an author reports of each."""

from pathlib import Path

import msgspec

from tileyard.base.errors import KernelFileError, TileyardError, UsageError
from tileyard.base.model import Side, Value
from tileyard.base.settings import Settings
from tileyard.engine.authors import Author, WorkerAuthor
from tileyard.frontend.declare import KernelInfo
from tileyard.show.options import complete, read_options
from tileyard.verbs.check.options import CheckOptions
from tileyard.verbs.check.view.findings import NotChecked, SyncReport
from tileyard.verbs.tune.options import MOST_TRIALS, TuneRequest, make_request
from tileyard.verbs.tune.plan.space import ASK_LIMIT_S, OpenSpace, open_space
from tileyard.workers.protocol import CheckSync, DescribeKernels, Failed, SyncChecked

FIRST_GUESS = 64
"""Value of arguments that have none, before the check looks for a suitable one."""


async def check_file(
    file: Path, kernel: str, given: CheckOptions, settings: Settings
) -> SyncReport:
    """Check configs of a kernel of a file, or of all its kernels if none is named, in an author of its own.
    Raises UsageError, also for a kernel that is named and cannot be elaborated.
    """
    values = read_options(CheckOptions, complete(CheckOptions, given))
    side = Side(name="", python_limit_s=values["python_limit"])
    author = WorkerAuthor(file, settings.home, settings.cores, side)
    try:
        return await check_kernels(author, str(file), kernel, given)
    finally:
        await author.close()


async def check_kernels(
    author: Author, file: str, kernel: str, given: CheckOptions, *, ends_itself: bool = False
) -> SyncReport:
    """Likewise the kernels of an author; if it ``ends_itself`` it ends a check that takes too long."""
    options = complete(CheckOptions, given)
    values = read_options(CheckOptions, options)
    everything = options["all_configs"] or bool(values["config"])
    request = make_request(kernel, values, trials=MOST_TRIALS if everything else 1)
    limit_s = values["limit"]
    question = CheckSync(
        kernel="",
        arguments={},
        config={},
        architecture=values["pipeline"],
        with_timeline=options["timeline"],
        limit_s=limit_s if ends_itself else 0.0,
    )
    wanted = await _choose(author, file, request)
    done: list[SyncChecked] = []
    sizes: dict[str, int] = {}
    failed: list[NotChecked] = []
    for one in wanted:
        try:
            space = await open_space(author, one, guess=FIRST_GUESS)
            await space.choose(everything=one.trials > 1)
            sizes[space.kernel] = space.size
            done += [
                await _check_config(author, space, config, limit_s, question)
                for config in space.configs
            ]
        except TileyardError as error:
            if len(wanted) == 1:
                raise
            failed.append(NotChecked(kernel=one.kernel, reason=str(error)))
    return SyncReport(
        file=file,
        kernels=tuple(done),
        not_checked=tuple(failed),
        sizes=sizes,
        architecture=question.architecture,
    )


async def _choose(author: Author, file: str, request: TuneRequest) -> list[TuneRequest]:
    if request.kernel:
        return [request]
    described = await author.ask(DescribeKernels(), ASK_LIMIT_S)
    if isinstance(described, Failed):
        raise KernelFileError(described.message)
    kernels = described.kernels
    if len(kernels) < 2:
        return [request]
    for key in (*request.arguments, *request.overrides):
        if not any(info.may_take(key) for info in kernels):
            raise UsageError(f"no kernel of {file} has a parameter {key!r}")
    return [_narrow(request, info) for info in kernels]


def _narrow(request: TuneRequest, info: KernelInfo) -> TuneRequest:
    return msgspec.structs.replace(
        request,
        kernel=info.name,
        arguments={k: value for k, value in request.arguments.items() if info.may_take(k)},
        overrides={k: values for k, values in request.overrides.items() if info.may_take(k)},
    )


async def _check_config(
    author: Author,
    space: OpenSpace,
    config: dict[str, Value],
    limit_s: float,
    question: CheckSync,
) -> SyncChecked:
    asked = msgspec.structs.replace(
        question,
        kernel=space.kernel,
        arguments=space.arguments,
        config=config,
        guessed=space.guessed,
    )
    reply = await author.ask(asked, limit_s)
    if isinstance(reply, Failed):
        raise UsageError(f"{space.kernel} cannot be checked: {reply.message}")
    return reply
