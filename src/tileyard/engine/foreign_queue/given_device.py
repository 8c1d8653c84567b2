"""Finds the device that a queue gave to a task, with few imports: the device is held meanwhile."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import Device
from tileyard.base.settings import read_settings
from tileyard.devices.declared import Declaration, is_declarable, make_device
from tileyard.devices.foreign import name_device
from tileyard.devices.names import NAME, class_of, index_of
from tileyard.devices.registry import parse_device
from tileyard.devices.together import hold_together
from tileyard.workers.task_lines import Submitted

RANGE = re.compile(r"\d+-\d+")
"""An entry of a mask with several devices."""
UNSAID: Final = Submitted(token="", device="")


def find_device_name(task: Submitted, given: str, environ: Mapping[str, str]) -> str:
    """The local name of the device. Raises DamagedError if the queue did not give one."""
    value = given or environ.get(task.device_variable, "")
    if "{device}" in task.device and not value:
        raise DamagedError(
            f"the queue gave no device: {task.device_variable} is not set on this side"
        )
    return name_device(task.device, value)


def accept_device(name: str, task: Submitted = UNSAID) -> Device:
    """Accept a device that a queue gave, without a lock. Raises UsageError. One of a class that is
    unknown here is accepted as the queue names it, with the class's mask if the ``task`` says so;
    the queue's mask of just what was given stays.
    """
    if "," not in name:
        return _accept(name, 0, 1, task)
    kind, ones = class_of(name), index_of(name).split(",")
    return hold_together(
        [_accept(f"{kind}:{one}", place, len(ones), task) for place, one in enumerate(ones)]
    )


def _accept(name: str, place: int, count: int, task: Submitted) -> Device:
    """The device at a ``place`` among those given, which may all be listed by one variable."""
    settings = read_settings(os.environ, Path.cwd())
    try:
        device = parse_device(name, settings)
    except UsageError:
        if not is_declarable(name) or NAME.fullmatch(name) is None:
            raise
        stated = Declaration(name=name, id=index_of(name))
        device = make_device(stated, f"device {name!r}", settings, has_mask=task.has_mask)
        own = {key: os.environ.get(key, "").split(",") for key in device.env}
        env = {
            key: listed[place]
            for key, listed in own.items()
            if len(listed) == count and listed[place] and not RANGE.fullmatch(listed[place])
        }
        device = msgspec.structs.replace(device, env={**device.env, **env})
    probe = tuple(name_device(word, index_of(name)) for word in task.probe)
    return msgspec.structs.replace(device, locks=(), probe=probe or device.probe)
