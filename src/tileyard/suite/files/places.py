"""Places in suite files: what every message about them begins with."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import msgspec

from tileyard.decoding import decode_toml
from tileyard.errors import UsageError
from tileyard.suite.files.toml_lines import Path as KeyPath
from tileyard.suite.files.toml_lines import key_lines

Table = dict[str, object]


class Document:
    """A suite file: its table, and where in it each key stands."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where the file cannot be read or is not TOML."""
        self.path = path
        self.folder = path.parent
        try:
            self._text = path.read_text(encoding="utf-8")
            self.table: Table = decode_toml(self._text)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: is not UTF-8") from error
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}: is not valid TOML: {error}") from error

    @cached_property
    def lines(self) -> dict[KeyPath, int]:
        """The line of each key."""
        return key_lines(self._text.replace("\r\n", "\n"))


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in a suite file, for messages. ``note`` is said of it besides, as of a listed case."""

    document: Document
    keys: KeyPath = ()
    note: str = ""

    def __truediv__(self, key: str | int) -> "Place":
        """What lies below a key or an index."""
        return Place(document=self.document, keys=(*self.keys, key), note=self.note)

    @property
    def up(self) -> "Place":
        """What it lies in."""
        return replace(self, keys=self.keys[:-1])

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.document.path}:{self._line()}"

    @property
    def key(self) -> str:
        """The key as people write it, with indexes in brackets."""
        parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys]
        return "".join(parts).removeprefix(".")

    def fail(self, problem: str, hint: str = "") -> NoReturn:
        """Raise UsageError that says where, at which key, and what."""
        parts = [self.where, self.key, self.note, problem]
        raise UsageError(": ".join(part for part in parts if part), hint)

    def _line(self) -> int:
        lines = self.document.lines
        # What stands in no file, as the rows that a command printed, has the line of what brought it.
        for length in range(len(self.keys), 0, -1):
            if self.keys[:length] in lines:
                return lines[self.keys[:length]]
        return 1
