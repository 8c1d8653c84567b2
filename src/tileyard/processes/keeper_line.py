"""The command line with which a keeper is started."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tileyard.model import Device
from tileyard.processes import keeper
from tileyard.processes.records import LeaseRequest

START: Final = str(Path(keeper.__file__).with_name("start.py"))
PYTHON: Final = (sys.executable, "-S", "-E", "-I", "-X", "utf8")  # so that all bytes pass


def keeper_argv(
    tree: str, options: Sequence[str], lease: LeaseRequest | None, argv: Sequence[str]
) -> list[str]:
    """How to start a keeper of ``argv`` below this process, with a lease if one is asked for."""
    line = [
        *PYTHON,
        START,
        f"parent={os.getpid()}",
        f"tree={tree}",
        f"outer={os.environ.get('TILEYARD_TREE', '')}",
        *options,
    ]
    if lease is not None:
        line += [f"count={lease.count}", f"priority={lease.priority}"]
        for device in lease.choices:
            line += _describe_device(device)
    return [*line, "--", *argv]


def _describe_device(device: Device) -> list[str]:
    return [
        f"choice={device.name}",
        *(f"lock={lock}" for lock in device.locks),
        *(f"env={name}={text}" for name, text in device.env.items()),
        f"device-cores={','.join(map(str, device.cores))}",
        *(f"probe={word}" for word in device.probe),
        f"probe-limit={device.probe_limit_s:f}",
    ]
