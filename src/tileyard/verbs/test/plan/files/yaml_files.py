"""Reads YAML files as documents: all scalars as text, the line of each key, and labels in comments."""

import re
from functools import cached_property
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tileyard.base.errors import UsageError
from tileyard.base.places import Document, KeyPath

MOST_NODES = 100_000
"""Maximum number of nodes: aliases can make a short file arbitrarily long."""
_LABEL = re.compile(r"#\s*tileyard:(.*)")
_LABELS = re.compile(r"(?:\s*(?:does=[\w.+/:-]+|minutes=\d+(?:\.\d+)?))+\s*")


class YamlFile(Document):
    """A YAML file. ``text_lines`` are the first lines of scalars' texts, maybe below their keys."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError that names file and line."""
        self.path = path
        self.folder = path.parent
        self._lines: dict[KeyPath, int] = {(): 1}
        self.text_lines: dict[KeyPath, int] = {}
        self._steps: list[tuple[int, int, KeyPath]] = []
        self._count = 0
        try:
            self._text = path.read_text(encoding="utf-8")
            table = self._read(YAML(typ="safe", pure=True).compose(self._text), ())
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: is not UTF-8") from error
        except (YAMLError, RecursionError) as error:
            mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
            problem = error.problem if isinstance(error, MarkedYAMLError) else str(error)
            line = mark.line + 1 if mark else 1
            raise UsageError(f"{path}:{line}: is not valid YAML: {problem}") from error
        if not isinstance(table, dict):
            raise UsageError(f"{path}:1: is not a workflow: it has no keys")
        self.table = table

    @cached_property
    def lines(self) -> dict[KeyPath, int]:
        """The line of each key."""
        return self._lines

    @cached_property
    def labels(self) -> dict[KeyPath, dict[str, str]]:
        """The comments ``# tileyard: does=... minutes=...`` for the steps that they are above or in."""
        found: dict[KeyPath, dict[str, str]] = {}
        for number, text in enumerate(self._text.splitlines(), 1):
            label = _LABEL.search(text)
            if label is None:
                continue
            if not _LABELS.fullmatch(label[1]):
                raise UsageError(
                    f"{self.path}:{number}: cannot read the label {label[1].strip()!r}",
                    "write # tileyard: does=NAME, or # tileyard: does=NAME minutes=30",
                )
            below = next((step for step in self._steps if step[0] > number), None)
            above = next((step for step in reversed(self._steps) if step[0] <= number), None)
            is_above = not text[: label.start()].strip() and below and label.start() < below[1]
            if chosen := below if is_above else above:
                said = (word.partition("=") for word in label[1].split())
                found.setdefault(chosen[2], {}).update({name: value for name, _, value in said})
        return found

    def _read(self, node: Node | None, keys: KeyPath) -> object:
        self._count += 1
        if self._count > MOST_NODES:
            raise YAMLError("its aliases make it too large")
        match node:
            case MappingNode():
                table: dict[str, object] = {}
                for key, value in node.value:
                    line, name = key.start_mark.line + 1, str(key.value)
                    if name in table:
                        before = self._lines[*keys, name]
                        raise UsageError(f"{self.path}:{line}: {name}: is on line {before} already")
                    self._lines[*keys, name] = line
                    table[name] = self._read(value, (*keys, name))
                return table
            case SequenceNode():
                for number, value in enumerate(node.value):
                    line = self._lines[*keys, number] = value.start_mark.line + 1
                    if keys[-1:] == ("steps",):
                        self._steps.append((line, value.start_mark.column, (*keys, number)))
                return [self._read(value, (*keys, n)) for n, value in enumerate(node.value)]
            case ScalarNode():
                below = 1 if node.style in ("|", ">") else 0
                self.text_lines[keys] = node.start_mark.line + 1 + below
                return None if str(node.tag).endswith(":null") else str(node.value)
            case _:
                return None
