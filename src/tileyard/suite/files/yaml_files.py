"""YAML files as documents: all scalars as text, the line of each key, and labels in comments."""

import re
from functools import cached_property
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tileyard.errors import UsageError
from tileyard.suite.files.places import Document, KeyPath, Place

MOST_NODES = 100_000
"""Aliases can make a short file long beyond any measure."""
_LABEL = re.compile(r"#\s*tileyard:(.*)")
_LABELS = re.compile(r"(?:\s*(does=[\w.+/:-]+|minutes=\d+(?:\.\d+)?))*\s*")


class YamlFile(Document):
    """A YAML file: all its scalars as text, and the line of each key."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError that names file and line."""
        self.path = path
        self.folder = path.parent
        self._lines: dict[KeyPath, int] = {(): 1}
        self.first_lines: dict[KeyPath, int] = {}
        """Where the text of a value begins, which may be below its key."""
        self._count = 0
        try:
            self._text = path.read_text(encoding="utf-8")
            node = YAML(typ="safe", pure=True).compose(self._text)
            table = self._read(node, ())
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: is not UTF-8") from error
        except MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise UsageError(f"{path}:{line}: is not valid YAML: {error.problem}") from error
        except (YAMLError, RecursionError) as error:
            raise UsageError(
                f"{path}:1: is not valid YAML: {str(error).splitlines()[0]}"
            ) from error
        if not isinstance(table, dict):
            raise UsageError(f"{path}:1: is no workflow: it has no keys")
        self.table = table

    @cached_property
    def lines(self) -> dict[KeyPath, int]:
        """The line of each key."""
        return self._lines

    def labels(self, place: Place, last_line: int) -> dict[str, str]:
        """What comments ``# tileyard: does=... minutes=...`` at a step say."""
        texts = self._text.splitlines()
        first = self._lines[place.keys]
        while first > 1 and texts[first - 2].lstrip().startswith("#"):
            first -= 1
        found: dict[str, str] = {}
        for number in range(first, min(last_line, len(texts)) + 1):
            label = _LABEL.search(texts[number - 1])
            if label is None:
                continue
            if not label[1].strip() or not _LABELS.fullmatch(label[1]):
                raise UsageError(
                    f"{self.path}:{number}: cannot read the label {label[1].strip()!r}",
                    "write # tileyard: does=NAME, or # tileyard: does=NAME minutes=30",
                )
            for word in label[1].split():
                name, _, value = word.partition("=")
                found[name] = value
        return found

    def last_line(self, steps: KeyPath, number: int) -> int:
        """The last line of a step: that before the comments above the next one, or before what is less indented."""
        texts = self._text.splitlines()
        first = self._lines[*steps, number]
        dash = texts[first - 1].find("-")
        for at in range(first, len(texts)):
            line = texts[at]
            if line.strip() and len(line) - len(line.lstrip()) <= dash:
                return at
        return len(texts)

    def _read(self, node: Node | None, keys: KeyPath) -> object:
        self._count += 1
        if self._count > MOST_NODES:
            raise YAMLError("its aliases make it too large")
        match node:
            case MappingNode():
                table: dict[str, object] = {}
                for key, value in node.value:
                    line = key.start_mark.line + 1
                    name = str(key.value)
                    if name in table:
                        raise UsageError(
                            f"{self.path}:{line}: {name}: stands on line {self._lines[*keys, name]} already"
                        )
                    self._lines[*keys, name] = line
                    table[name] = self._read(value, (*keys, name))
                return table
            case SequenceNode():
                rows = []
                for number, value in enumerate(node.value):
                    self._lines[*keys, number] = value.start_mark.line + 1
                    rows.append(self._read(value, (*keys, number)))
                return rows
            case ScalarNode():
                self.first_lines[keys] = node.start_mark.line + (
                    2 if node.style in ("|", ">") else 1
                )
                return None if str(node.tag).endswith(":null") else str(node.value)
            case _:
                return None
