"""An engine for test_processes.py: starts a worker with a daemon, says who is there, and waits.

Arguments: the lock file, the log, and ``fork`` to leave a copy of itself with all its pipes.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tileyard.base.events import Note
from tileyard.base.model import Device
from tileyard.processes.supervise import LeaseRequest, Worker, WorkerCommand


async def main(lock: str, log: str, mode: str) -> None:
    """Start, report one JSON line, wait for whatever comes."""
    command = WorkerCommand(
        argv=(sys.executable, str(Path(__file__).with_name("process_worker.py"))),
        env=dict(os.environ),
        cwd="/",
        log=log,
        lease=LeaseRequest(choices=(Device(name="cpu:0", kind="cpu", identity="", locks=(lock,)),)),
    )
    async with await Worker.start(command) as worker:
        await worker.send(Note(text="daemon"))
        daemon = int((await worker.receive(Note)).text)
        copy = os.fork() if mode == "fork" else 0
        if mode == "fork" and copy == 0:
            signal.pause()
        facts = {"worker": worker.pid, "daemon": daemon, "lease": worker.lease, "copy": copy}
        os.write(1, json.dumps(facts).encode() + b"\n")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
