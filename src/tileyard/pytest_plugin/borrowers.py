"""Decides which tests borrow a device from another queue, and from which."""

import os

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings
from tileyard.devices.foreign import ForeignQueue, refuse_nesting
from tileyard.devices.names import class_of
from tileyard.devices.queues import find_queue, is_queue
from tileyard.engine.foreign_queue.slots import require_tools
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.options import PluginOptions, is_distributed
from tileyard.pytest_plugin.separating import DEVICE
from tileyard.targets.registry import find_needs


def choose_queue(
    options: PluginOptions, settings: Settings, config: pytest.Config
) -> ForeignQueue | None:
    """The queue among the named devices, ready to be asked. Raises UsageError."""
    names = [name for name in options.devices if is_queue(name)]
    if not names:
        return None
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} are two queues", "name one of them")
    if is_distributed(config):
        raise UsageError(
            f"{names[0]} cannot be combined with pytest-xdist's -n: one process shares tests out among tasks",
            "leave -n out; the queue's `slots` is how many tasks there are at a time",
        )
    queue = find_queue(names[0], settings)
    refuse_nesting(queue, os.environ)
    require_tools(queue)
    return queue


def borrows(item: pytest.Item, active: Active, queue: ForeignQueue) -> bool:
    """Whether a test has to run on a device of the queue: as the tree's hook decides, else if it
    leases a device and no kernel is built for another class.
    """
    if active.find_failure(item) is not None:
        return False  # it does not even begin
    answer = item.ihook.pytest_tileyard_borrows(item=item)
    if answer is not None:
        return bool(answer)
    if DEVICE not in getattr(item, "fixturenames", ()):
        return False
    results = [
        active.results[step] for step in active.declared.kernels.get(item.nodeid, {}).values()
    ]
    needs = [find_needs(result.target) for result in results]
    return all(not need.is_bound or need.device_class == class_of(queue.device) for need in needs)
