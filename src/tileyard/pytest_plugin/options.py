"""The options of a run with ``--tileyard``, read once and checked."""

from typing import Any, Literal

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.settings import Settings
from tileyard.pytest_plugin.flags import OPTIONS
from tileyard.service.choosing import settle_target
from tileyard.show.words import parse_duration_s

MAX_WORKERS = 1024
REFUSED = (
    ("usepdb", "--pdb"),
    ("trace", "--trace"),
)
"""Options that need the terminal, which tests in processes of their own do not have."""

Dynamic = Literal["error", "lease", "prepare"]


class PluginOptions(Record):
    """The options of the command line; limits in seconds. Empty ``devices``: all of the target's class."""

    target: str
    devices: tuple[str, ...]
    limit_s: float
    build_limit_s: float
    queue_limit_s: float
    workers: int
    dynamic: Dynamic
    report: str


def read_options(config: pytest.Config, settings: Settings) -> PluginOptions:
    """The options. Raises UsageError, naming the invalid one."""
    for attribute, option in REFUSED:
        if config.getoption(attribute, False):
            raise UsageError(
                f"{option} cannot be combined with --tileyard",
                "run that one test without --tileyard",
            )
    devices = tuple(_given(config, "device") or ())
    return PluginOptions(
        target=settle_target(_get(config, "target"), devices, settings),
        devices=devices,
        limit_s=_get_limit(config, "limit"),
        build_limit_s=_get_limit(config, "build-limit"),
        queue_limit_s=_get_limit(config, "queue-limit"),
        workers=_read_workers(config),
        dynamic=_read_dynamic(_get(config, "dynamic")),
        report=_get(config, "report"),
    )


def read_marked_limit(item: pytest.Item, default_s: float) -> float:
    """A test's limit. Raises UsageError if its ``tile_limit`` marker is invalid."""
    marker = item.get_closest_marker("tile_limit")
    if marker is None:
        return default_s
    if len(marker.args) != 1 or marker.kwargs:
        raise UsageError(f"{item.nodeid}: tile_limit takes one duration, such as '90s'")
    return _read_limit(f"{item.nodeid}: tile_limit", str(marker.args[0]))


def is_distributed(config: pytest.Config) -> bool:
    """Whether pytest-xdist distributes the tests, seen from its controller."""
    return bool(config.getoption("tx", None)) or config.getoption("dist", "no") != "no"


def _given(config: pytest.Config, name: str) -> Any:  # noqa: ANN401 - pytest does not know the types
    return config.getoption(f"tileyard_{name.replace('-', '_')}")


def _get(config: pytest.Config, name: str) -> str:
    return _given(config, name) or OPTIONS[name][0]


def _get_limit(config: pytest.Config, name: str) -> float:
    return _read_limit(f"--tileyard-{name}", _get(config, name))


def _read_limit(option: str, text: str) -> float:
    try:
        seconds = parse_duration_s(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error.message}") from None
    if seconds <= 0:
        raise UsageError(f"{option}: {text!r}: the limit must be longer than 0")
    return seconds


def _read_workers(config: pytest.Config) -> int:
    text = _get(config, "workers")
    if is_distributed(config) and _given(config, "workers") is not None:
        raise UsageError(
            "--tileyard-workers cannot be combined with pytest-xdist's -n", "give one of them"
        )
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= MAX_WORKERS:
        raise UsageError(f"--tileyard-workers: {text!r} is not between 1 and {MAX_WORKERS}")
    return int(text)


def _read_dynamic(text: str) -> Dynamic:
    match text:
        case "error":
            return "error"
        case "lease":
            return "lease"
        case "prepare":
            return "prepare"
        case _:
            raise UsageError(f"--tileyard-dynamic: {text!r} is not one of error, lease, prepare")
