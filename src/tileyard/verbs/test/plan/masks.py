"""Tells the owner of a suite that ``{device}`` counts what a mask leaves, when it first meets a mask."""

from collections.abc import Iterable

from tileyard.base.model import CommandWork, Device
from tileyard.base.settings import Settings
from tileyard.devices.classes import find_class
from tileyard.devices.declared import is_masked
from tileyard.devices.names import class_of
from tileyard.devices.queues import find_queue, is_queue
from tileyard.verbs.test.result.records import SuiteCase


def warn_of_mask(cases: Iterable[SuiteCase], devices: Iterable[Device], settings: Settings) -> str:
    """The warning, empty if none of the cases names its device, or none of the devices is masked."""
    masks = {_find_mask(device, settings) for device in devices} - {""}
    if not (
        masks
        and any(_names_device(case.work) for case in cases if isinstance(case.work, CommandWork))
    ):
        return ""
    return (
        f"{{device}} and TASK_DEVICE count from 0 what {' and '.join(sorted(masks))} leaves visible; "
        "{device_physical} is the number on the host, and `mask = false` of a class hides "
        "nothing (told once for a suite)"
    )


def _find_mask(device: Device, settings: Settings) -> str:
    """The variable that will mask a device, or the one that a queue gives."""
    if not is_queue(device.name):
        return device.mask
    kind = class_of(find_queue(device.name.partition("/")[0].partition("*")[0], settings).device)
    return find_class(kind).masks[0] if is_masked(kind, settings) else ""


def _names_device(work: CommandWork) -> bool:
    steps = (work.run, *([work.hot.step] if work.hot is not None else []))
    return any(
        "{device}" in text for step in steps for text in (*step.argv, *step.env.values(), step.cwd)
    )
