"""``tileyard look``: one block of a kernel step by step, and where a wrong element came from."""

import asyncio
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    ArgumentValues,
    ConfigValue,
    OutputOption,
    PythonLimit,
    Reference,
    ShapeName,
    TimeLimitOption,
    parse_kernel,
    require_one,
)
from tileyard.show.options import Home, Option, complete, read_options
from tileyard.show.typed import AsJson, KernelName
from tileyard.show.values import FilePath, Time
from tileyard.verbs.check.options import PlannedBy
from tileyard.verbs.tune.options import InputsName

USUAL_LIMIT_S = 10


def read_block(text: str, option: str) -> tuple[int, ...]:
    """A block's place in the grid. Raises UsageError."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(
            f"{option} {text}: whole numbers, blockIdx.x first, as {option} 3,0"
        ) from None


class LookOptions(TypedDict, total=False):
    """The options of ``look``."""

    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValue
    block: Annotated[
        str,
        Option(
            "The block, blockIdx.x first; by default the one with the first wrong element.",
            metavar="X[,Y[,Z]]",
            default="",
            read=read_block,
        ),
    ]
    pipeline: PlannedBy
    reference: Reference
    inputs: InputsName
    output: Annotated[
        FilePath,
        OutputOption("The page to write; by default KERNEL.html in the working directory."),
    ]
    limit: Annotated[Time, TimeLimitOption(default=f"{USUAL_LIMIT_S}s")]
    python_limit: PythonLimit
    home: Home


def look(kernel: KernelName, *, json: AsJson = False, **options: Unpack[LookOptions]) -> int:
    """Show one block of a kernel step by step, as a page: what each statement reads and writes, tiles
    with their values, barriers, copies, memory.

    No accelerator is needed: the block runs in the interpreter of tileyard check, in which each
    asynchronous operation takes effect as late as its waits allow.

    With a reference, a wrong element is followed back through the statements that made it. Small changes
    of these are tried one at a time: the page names the statement with which one all results are right,
    or says that there is none.

    Without -o the page is KERNEL.html in the working directory.

    Exit status: 0 no element of the block is wrong; 1 one is, or the kernel fails; 2 bad usage, or a
    kernel that has no Program.
    """
    from tileyard.show.opening import load_settings, print_json, write_file
    from tileyard.verbs.look.view import ask, describe, render_look
    from tileyard.verbs.tune.options import make_request

    file, name = parse_kernel(kernel)
    values = read_options(LookOptions, complete(LookOptions, options))
    require_one(values["config"], "look")
    patience = values["limit"] / USUAL_LIMIT_S
    request = make_request(name, values, trials=1)
    seen = asyncio.run(ask(file, request, values, patience, load_settings()))
    if json:
        print_json(seen)
    else:
        path = Path(values["output"] or f"{seen.about.kernel}.html")
        write_file(path, render_look(seen).encode())
        for line in describe(seen, path):
            print(line)
    return int(bool(seen.ways or seen.verdict.suspects))
