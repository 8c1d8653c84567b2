"""``tileyard run``: builds, runs, compares and times one config of a kernel."""

from typing import Unpack

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import Emit, parse_kernel
from tileyard.show.typed import AsJson, KernelName
from tileyard.verbs.tune.options import RunOptions, start_run


def run_config(
    kernel: KernelName, *, emit: Emit, json: AsJson = False, **options: Unpack[RunOptions]
) -> int:
    """Build one config of a kernel, run it, compare every output, and time it.

    For a correct output, the element closest to its tolerance is printed; for a wrong one, the worst
    element. Parameters without --config are as in the first config. Earlier builds and results of the
    reference are reused; the config always runs. With --debug the last line is the command that runs it
    again in gdb, up to the kernel's first statement.

    Exit status: 0 it passed, or there is no reference, 1 it failed, 2 bad usage, 3
    infrastructure only, 130 interrupted.
    """
    from tileyard.verbs.tune.command import session

    file, name = parse_kernel(kernel)
    start = start_run(file, name, options)
    debug = options.get("debug", False)
    if emit is not None and json:
        raise UsageError("--emit and --json both print on standard output: choose one")
    if debug and json:
        raise UsageError("--debug prints a command, which --json would leave out: choose one")
    return session.run_config(start, emit=emit, as_json=json, for_debugger=debug)
