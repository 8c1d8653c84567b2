"""The foreign queues of this site, from the files in which devices are declared."""

from pathlib import Path

import msgspec

from tileyard.decoding import decode_toml
from tileyard.devices.declared import declaration_files
from tileyard.devices.foreign import QUEUE_KIND, ForeignQueue, decode_queues
from tileyard.errors import UsageError
from tileyard.settings import Settings

PREFIX = f"{QUEUE_KIND}:"


def read_queues(settings: Settings) -> tuple[ForeignQueue, ...]:
    """All declared queues in the order of their names' first declaration; the later file wins.

    Raises UsageError, naming file, queue and field, where one does not say what it must.
    """
    queues: dict[str, ForeignQueue] = {}
    for path in declaration_files(settings):
        queues.update({queue.name: queue for queue in _read_file(path)})
    return tuple(queues.values())


def find_queue(name: str, settings: Settings) -> ForeignQueue:
    """The queue that ``queue:NAME`` stands for. Raises UsageError if there is none."""
    queues = {queue.name: queue for queue in read_queues(settings)}
    found = queues.get(name.removeprefix(PREFIX))
    if found is None or not is_queue(name):
        known = ", ".join(PREFIX + known for known in queues) or "none is declared"
        raise UsageError(f"there is no queue {name!r}", f"queues: {known}")
    return found


def is_queue(name: str) -> bool:
    """Whether this is the name of a queue rather than of a device of this host."""
    return name.startswith(PREFIX)


def _read_file(path: Path) -> tuple[ForeignQueue, ...]:
    try:
        tables = decode_toml(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is not valid TOML: {error}") from error
    return decode_queues(tables.get("queue", ()), str(path))
