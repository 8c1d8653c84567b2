"""A device's probe: a command that tells a healthy device from a sick one by its exit code.

One that ends with 75, or is no program that this user can run, says nothing about the device: what
one user lacks must not take it from everyone. It runs as a child that can be killed, while the
lease is still held, so that nobody gets a device that the last holder has ruined.
"""

import os
import select
import time

from .options import Device
from .watching import RESCAN_S, Watcher
from .worker import start_program

CANNOT_TELL = 75
"""A probe's exit code where it says nothing about the device: a tool is missing, a card is taken."""


def run_probe(watcher: Watcher, device: Device, environment: dict[str, str]) -> str:
    """Why the device is sick, empty if its probe says that it is well. Nothing is left of it."""
    keeper = os.getpid()
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0)
            os.dup2(write_end, 1)
            os.dup2(write_end, 2)
            start_program(device.probe, environment | dict(device.env), keeper)
        except OSError as error:
            os.write(write_end, f"cannot run {device.probe[0]}: {error.strerror}".encode())
        finally:
            os._exit(CANNOT_TELL)
    os.close(write_end)
    watcher.output, watcher.output_fd = b"", read_end
    watcher.poll.register(read_end, select.POLLIN)
    deadline = time.monotonic() + device.probe_limit_s
    while watcher.reap() and child not in watcher.ended and time.monotonic() < deadline:
        watcher.wait(deadline - time.monotonic())
    is_late = child not in watcher.ended
    was_suspect = watcher.is_suspect
    survivors = watcher.kill_tree(spared=watcher.worker if watcher.is_working else 0)
    watcher.is_suspect = was_suspect  # what a probe leaves says nothing of a worker
    while watcher.output_fd >= 0 and not survivors:
        watcher.wait(RESCAN_S)
    code = watcher.ended.get(child)
    if survivors:
        return "its probe cannot be ended"
    if is_late:
        return f"its probe took longer than {device.probe_limit_s:g} s"
    if code in (0, CANNOT_TELL):
        return ""
    how = (
        f"ended with code {code}"
        if code is not None and code > 0
        else f"died of signal {-(code or 0)}"
    )
    last = watcher.output.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"its probe {how}: {last}" if last else f"its probe {how}"
