"""Reads JSON and TOML with any content, and drafts: every error in it is a msgspec.DecodeError."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

import msgspec

T = TypeVar("T")
Text = Annotated[str, msgspec.Meta(min_length=1)]
"""Text that is not empty."""
DEEPEST = 100
"""Most levels of lists and tables in an untyped document, through which later code walks recursively."""
MOST_DOTS = 1000
"""Most dots before the value on a line of TOML."""
TOO_DEEP = "it is nested too deeply"


def decode_json(data: bytes | str, kind: type[T]) -> T:
    """JSON as a value of a type; of ``object``, a plain value of at most DEEPEST levels."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None
    except UnicodeError:
        raise msgspec.DecodeError("it is not UTF-8") from None
    if kind is object:
        _refuse_deep(value)
    return value


def decode_toml(data: bytes | str) -> dict[str, object]:
    """A TOML document of at most DEEPEST levels."""
    lines = (data if isinstance(data, bytes) else data.encode(errors="replace")).splitlines()
    if any(line.partition(b"#")[0].partition(b"=")[0].count(b".") > MOST_DOTS for line in lines):
        raise msgspec.DecodeError(TOO_DEEP)  # keys with many parts take the parser quadratic time
    try:
        table: dict[str, object] = msgspec.toml.decode(data)
    except msgspec.DecodeError:
        raise
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None
    except UnicodeDecodeError:
        raise msgspec.DecodeError("it is not UTF-8") from None
    except ValueError as error:  # also that of an integer with thousands of digits
        raise msgspec.DecodeError(str(error)) from None
    _refuse_deep(table)
    return table


def _refuse_deep(value: object) -> None:
    level = [value]
    for _ in range(DEEPEST):
        lists = [one for one in level if isinstance(one, list)]
        tables = [one.values() for one in level if isinstance(one, dict)]
        level = [inner for outer in (*lists, *tables) for inner in outer]
        if not level:
            return
    raise msgspec.DecodeError(TOO_DEEP)


@contextlib.contextmanager
def draft_of(path: Path, room_bytes: int = 0) -> Iterator[BinaryIO]:
    """A new file that replaces ``path`` if the block ends well, of the umask's mode and with
    ``room_bytes`` reserved if possible. A link at ``path``, not another user's, is followed; a pipe
    or the like is written directly. Raises OSError.
    """
    if path.is_symlink() and path.lstat().st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, "it is a link of another user")
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    place = path.resolve()
    draft = place.with_name(f".{place.name}.{os.urandom(8).hex()}")
    try:
        with draft.open("xb") as file:
            _take_room(file.fileno(), room_bytes)
            yield file
            file.truncate()
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


def _take_room(descriptor: int, room_bytes: int) -> None:
    while room_bytes:
        with contextlib.suppress(
            OSError
        ):  # less suffices, and none if this file system cannot reserve
            os.posix_fallocate(descriptor, 0, room_bytes)
            return
        room_bytes //= 2
