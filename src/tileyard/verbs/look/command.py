"""``tileyard look``: one block of a kernel step by step, and where a wrong element came from."""

import asyncio
from pathlib import Path
from typing import Unpack

from tileyard.show.kernel_options import parse_kernel, require_one
from tileyard.show.options import complete, read_options
from tileyard.show.typed import AsJson, KernelName
from tileyard.verbs.look.options import LookOptions


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
    from tileyard.verbs.look.plan import ask
    from tileyard.verbs.look.view import describe, render_look
    from tileyard.verbs.tune.options import make_request

    file, name = parse_kernel(kernel)
    values = read_options(LookOptions, complete(LookOptions, options))
    require_one(values["config"], "look")
    seen = asyncio.run(ask(file, make_request(name, values, trials=1), values, load_settings()))
    if json:
        print_json(seen)
    else:
        path = Path(values["output"] or f"{seen.about.kernel}.html")
        write_file(path, render_look(seen).encode())
        for line in describe(seen, path):
            print(line)
    return int(bool(seen.ways or seen.verdict.suspects))
