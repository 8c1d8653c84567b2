"""What supervision costs: starts, messages, kills, each beside the same thing without it.

Run as ``python benchmarks/processes.py``; medians of alternating runs, so that a busy machine
disturbs both sides alike.
"""

import asyncio
import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tileyard.base.events import Note
from tileyard.processes.steps import StepOrder, run_step
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.processes.wire import Channel

ROUNDS = 40
MESSAGES = 2000
ENVIRONMENT = dict(os.environ)


def echo() -> None:
    """The worker: answer every message with itself."""
    channel = Channel.inherited()
    while (message := channel.receive(Note)) is not None:
        channel.send(message)


def command(*argv: str) -> WorkerCommand:
    """A worker that needs nothing."""
    return WorkerCommand(argv=argv, env=ENVIRONMENT, cwd="/")


def show(name: str, samples: list[float]) -> None:
    """One line: the median."""
    print(f"{name:46} {statistics.median(samples):8.3f} ms")


async def time_ms(step: Callable[[], Coroutine[Any, Any, object]]) -> float:
    """One step, in milliseconds."""
    began = time.perf_counter()
    await step()
    return (time.perf_counter() - began) * 1e3


async def start_bare() -> None:
    """A process without a keeper, from start to end."""
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()


async def start_python() -> None:
    """An interpreter that does nothing, as the keeper is started."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-E", "-I", "-c", "")
    await process.wait()


async def start_kept() -> None:
    """The same process under a keeper, from start to confirmed end."""
    worker = await Worker.start(command("true"))
    await worker.ended()


async def start_echo() -> None:
    """A Python worker, from start to its first answer to its confirmed end."""
    async with await Worker.start(command(sys.executable, __file__, "echo")) as worker:
        await worker.send(Note(text="x"))
        await worker.receive(Note)


async def measure_starts() -> None:
    """Starts, side by side."""
    steps = {
        "bare process, start to end": start_bare,
        "bare python -S -E -I, start to end": start_python,
        "kept process, start to confirmed end": start_kept,
        "step under a forked keeper, likewise": run_kept_step,
        "kept Python worker, to first answer and end": start_echo,
    }
    await run_kept_step()  # starts the fork server
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            times[name].append(await time_ms(step))
    for name, samples in times.items():
        show(name, samples)


async def run_kept_step() -> None:
    """The same process as a step, under a keeper that is forked, from start to confirmed end."""
    assert run_step(StepOrder(argv=("true",), env=ENVIRONMENT, cwd="/", log=os.devnull)).ok


async def measure_kill() -> None:
    """From the order to the confirmed end of a worker that obeys, or is not asked first."""
    for name, grace_s in (("kill, TERM first", 0.2), ("kill, KILL at once", 0.0)):
        samples = []
        for _ in range(ROUNDS):
            worker = await Worker.start(command("sleep", "1000"))
            samples.append(await time_ms(functools.partial(worker.kill, "measured", grace_s)))
        show(name, samples)


async def measure_messages() -> None:
    """Round trips through the channel."""
    async with await Worker.start(command(sys.executable, __file__, "echo")) as worker:

        async def small() -> None:
            await worker.send(Note(text="x" * 20))
            await worker.receive(Note)

        async def large() -> None:
            await asyncio.gather(worker.send(Note(text="x" * (1 << 20))), worker.receive(Note))

        await small()
        show("message round trip, 20 bytes", [await time_ms(small) for _ in range(MESSAGES)])
        show("message round trip, 1 MiB", [await time_ms(large) for _ in range(ROUNDS)])


def measure_bare_pipe() -> None:
    """One byte there and back, without messages or asyncio."""
    argv = [sys.executable, "-c", "import os\nwhile b := os.read(0, 1): os.write(1, b)"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as other:
        if other.stdin is None or other.stdout is None:
            raise AssertionError("pipes were asked for")
        samples = []
        for _ in range(MESSAGES):
            began = time.perf_counter()
            other.stdin.write(b"x")
            other.stdout.read(1)
            samples.append((time.perf_counter() - began) * 1e3)
        show("one byte through a bare Python process", samples)


async def main() -> None:
    """Print one line per figure."""
    await measure_starts()
    await measure_kill()
    await measure_messages()


if __name__ == "__main__":
    if sys.argv[1:] == ["echo"]:
        echo()
    else:
        asyncio.run(main())
        measure_bare_pipe()
