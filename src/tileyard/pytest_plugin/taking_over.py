"""In a copy of pytest's process: what it does by itself from then on, and what it leaves to the original."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tileyard.base.modes import open_file
from tileyard.pytest_plugin.forked import out_log


def take_place(config: pytest.Config, outer: object, inner: object, log: Path) -> None:
    """In a copy: replace the plugin that has copied itself with ``inner``, and print to files of its own."""
    plugins = config.pluginmanager
    plugins.unregister(outer)
    for plugin in plugins.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":  # its channel is the original's
            plugins.unregister(plugin)
    reporting = config.hook.pytest_runtest_logreport  # reports are the original's to log
    for listener in reporting.get_hookimpls():
        if listener.plugin_name != "session":  # which counts failures, for -x
            reporting._remove_plugin(listener.plugin)  # noqa: SLF001 - they keep their other hooks
    plugins.register(inner)
    _renew_capture(config, log)


def _renew_capture(config: pytest.Config, log: Path) -> None:
    """Capture for this process alone, into files that are there when it has crashed."""
    manager = config.pluginmanager.getplugin("capturemanager")
    if manager is None or not manager.is_globally_capturing():
        return
    manager.stop_global_capturing()
    manager.start_global_capturing()
    capturing = manager._global_capturing  # noqa: SLF001 - pytest has no other way to its files
    for stream, path in ((capturing.out, out_log(log)), (capturing.err, log)):
        with suppress(AttributeError, OSError, ValueError):  # captured in memory only
            fd = open_file(path, os.O_RDWR | os.O_CREAT)
            os.dup2(fd, stream.tmpfile.fileno(), inheritable=False)
            os.close(fd)
    manager.suspend_global_capture()
