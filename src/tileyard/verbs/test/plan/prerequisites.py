"""Checks whether a host has what a suite or toolchain requires, before anything is unpacked, built or run."""

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from tileyard.artifacts.compat import Prerequisites, find_missing, require_fit
from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.devices.registry import find_devices
from tileyard.workers.step_identity import ask_command

NOTHING = Prerequisites()
NO_VARIABLES: Mapping[str, str] = {}


def require_prerequisites(
    what: str,
    needed: Prerequisites,
    settings: Settings,
    *,
    more: Mapping[str, str] = NO_VARIABLES,
    named: Sequence[Device] = (),
) -> None:
    """Raise IncompatibleError naming all that is missing. ``more`` are variables besides our own, as a
    toolchain's; ``named`` are a run's devices.
    """
    if needed == NOTHING:
        return
    env = {**os.environ, **more}
    devices = [*named, *(find_devices(settings) if needed.devices else ())]
    kinds = Counter(kind for _, kind in {(device.name, device.kind) for device in devices})
    with tempfile.TemporaryDirectory(prefix="tileyard-asked-") as folder:
        ask = partial(ask_command, env=env, cwd=folder)
        require_fit(what, tuple(find_missing(needed, env, ask, kinds)))
