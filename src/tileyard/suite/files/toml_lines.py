"""Where in a TOML file each key stands, which the parser of the standard library does not tell.

Only for text that the parser has accepted: what is not TOML gives no sensible answer here.
"""

import re
import tomllib
from dataclasses import dataclass, field

Path = tuple[str | int, ...]
"""Keys and indexes on the way to a value, as in ``("testcase", 2, "run", "argv", 0)``."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# The longest form first: three quotes also begin with one.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


def key_lines(text: str) -> dict[Path, int]:
    """The line, from 1, on which each table, key and element of an array of ``text`` begins."""
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.lines


@dataclass
class _Scanner:
    """A walk over the text that looks at keys and steps over values."""

    text: str
    at: int = 0
    lines: dict[Path, int] = field(default_factory=dict)
    _counted: int = 0
    _line: int = 1
    _counts: dict[Path, int] = field(default_factory=dict)

    def scan(self) -> None:
        """Take in the whole document."""
        prefix: Path = ()
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self._is_next("["):
                prefix = self._header()
            else:
                self._pair(prefix)
            self._skip(_BLANK)

    def _header(self) -> Path:
        line = self._here()
        is_array = self._is_next("[[")
        self.at += 2 if is_array else 1
        keys = self._keys()
        self.at += 2 if is_array else 1
        path: Path = ()
        for number, key in enumerate(keys):
            path = (*path, key)
            self.lines.setdefault(path, line)
            if is_array and number == len(keys) - 1:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                # A name in a header stands for the array's last table so far.
                path = (*path, self._counts[path] - 1)
        # A table that dotted names made before begins where its header stands.
        self.lines[path] = line
        return path

    def _pair(self, prefix: Path) -> None:
        line = self._here()
        path = prefix
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _keys(self) -> list[str]:
        """A dotted key, up to what follows it."""
        keys = []
        while True:
            self._skip(_SPACE)
            if self._is_next('"') or self._is_next("'"):
                keys.append(_unquote(self._take(_STRING)))
            else:
                keys.append(self._take(_BARE_KEY))
            self._skip(_SPACE)
            if not self._is_next("."):
                return keys
            self.at += 1

    def _value(self, path: Path) -> None:
        self.lines.setdefault(path, self._here())
        if self._is_next("["):
            self._array(path)
        elif self._is_next("{"):
            self._inline_table(path)
        elif self._is_next('"') or self._is_next("'"):
            self._take(_STRING)
        else:
            self._take(_SCALAR)

    def _array(self, path: Path) -> None:
        self.at += 1
        number = 0
        self._skip(_BLANK)
        while not self._is_next("]"):
            if self._is_next(","):
                self.at += 1
            else:
                self._value((*path, number))
                number += 1
            self._skip(_BLANK)
        self.at += 1

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        self._skip(_BLANK)
        while not self._is_next("}"):
            if self._is_next(","):
                self.at += 1
            else:
                self._pair(path)
            self._skip(_BLANK)
        self.at += 1

    def _is_next(self, sign: str) -> bool:
        return self.text.startswith(sign, self.at)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise AssertionError(f"no TOML at line {self._here()}")
        self.at = found.end()
        return found.group()

    def _here(self) -> int:
        """The line of the present place; the walk only goes on, so each is counted once."""
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line


def _unquote(key: str) -> str:
    decoded = tomllib.loads(f"key = {key}")["key"]
    return str(decoded)
