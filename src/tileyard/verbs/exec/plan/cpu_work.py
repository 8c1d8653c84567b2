"""The CPU's part of a Program: kernels that differ only in the rest are built and timed once."""

import re

import msgspec

from tileyard.base.model import Kernel

_THREADS = re.compile(r"^    threads\(.*\)\n", re.MULTILINE)
_STAGES = re.compile(r"^( *for .* in pipelined\(.*), stages=\d+\)", re.MULTILINE)


def as_cpu_work(kernel: Kernel) -> Kernel:
    """``kernel`` without what has no effect on a CPU: its threads, and the depth of its pipelines."""
    program = _STAGES.sub(r"\1)", _THREADS.sub("", kernel.program))
    return msgspec.structs.replace(kernel, program=program)
