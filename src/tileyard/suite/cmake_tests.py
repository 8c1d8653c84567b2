"""The tests that the CMakeLists.txt of a tree declare, without running CMake.

Variables, lists, globs, loops, functions and subdirectories are followed; of conditions every branch is, and what
they set is not known after them. What only a configured build knows stays as written, as ``${NAME}``.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from tileyard.model import Record

DEEPEST = 20
"""Maximum depth of calls of functions, loops and subdirectories."""
_TOKEN = re.compile(
    r"#?\[(?P<level>=*)\[(?P<raw>.*?)\](?P=level)\]|#[^\n]*"
    r'|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<sign>[()])|(?P<word>(?:[^\s()"#\\]|\\.|(?<=\S)"[^"]*")+)',
    re.DOTALL,
)
_VARIABLE = re.compile(r"\$\{([\w.+/-]+)\}")
_DISCOVERS = re.compile(r"\w+_discover_tests|gtest_add_tests")
_WORDS = {
    "CMAKE_COMMAND": "cmake",
    "CMAKE_CTEST_COMMAND": "ctest",
    **dict.fromkeys(("Python3_EXECUTABLE", "Python_EXECUTABLE", "PYTHON_EXECUTABLE"), "python3"),
}


class CmakeTest(Record):
    """A test of ctest. Those that a program lists when it is built have the name ``*`` and no command."""

    name: str
    argv: tuple[str, ...] = ()
    cwd: str = ""
    labels: tuple[str, ...] = ()


class _Call(Record):
    """A call of a command: its words, each with whether it was quoted."""

    name: str
    words: tuple[tuple[str, bool], ...]


@lru_cache(maxsize=64)
def list_cmake_tests(tree: str) -> tuple[CmakeTest, ...]:
    """The tests that ctest may run in a build of a tree, in the order in which they are declared."""
    known = {**_WORDS, "CMAKE_SOURCE_DIR": tree, "PROJECT_SOURCE_DIR": tree}
    walk = _Walk(tree)
    walk.enter(tree, known)
    return tuple(walk.tests)


class _Walk:
    """Follows the files of a tree; variables are those of the current folder or function."""

    def __init__(self, tree: str) -> None:
        self.tree = tree
        self.tests: list[CmakeTest] = []
        self._functions: dict[str, tuple[Sequence[str], Sequence[_Call]]] = {}
        self._depth = 0
        self._does: dict[str, Callable[[list[str], dict[str, str]], None]] = {
            "set": self._set,
            "list": self._list,
            "file": self._file,
            "get_filename_component": self._component,
            "add_subdirectory": self._subdirectory,
            "include": self._include,
            "add_test": self._test,
            "set_tests_properties": self._properties,
            "set_property": self._property,
        }

    def enter(self, folder: str, known: dict[str, str]) -> None:
        """Read the file of a folder, with variables of its own."""
        place = {"CMAKE_CURRENT_SOURCE_DIR": folder, "CMAKE_CURRENT_LIST_DIR": folder}
        self._read(f"{folder}/CMakeLists.txt", {**known, **place})

    def _read(self, path: str, known: dict[str, str]) -> None:
        if Path(path).is_file() and self._depth < DEEPEST:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
            self._run(list(_parse(text)), known)

    def _run(self, calls: Sequence[_Call], known: dict[str, str]) -> None:
        self._depth += 1
        at, branches = 0, list[tuple[dict[str, str], dict[str, str]]]()
        while at < len(calls) and self._depth < DEEPEST:
            call = calls[at]
            at += 1
            if call.name in ("foreach", "function", "macro"):
                end = _find_end(calls, at, call.name)
                body, at = calls[at:end], end + 1
                words = _expand(call, known)
                if call.name != "foreach" and words:
                    self._functions[words[0].lower()] = (words[1:], body)
                for value in _values(words, known) if call.name == "foreach" else ():
                    known[words[0]] = value
                    self._run(body, known)
            elif call.name == "if":
                branches.append((dict(known), {}))
            elif call.name in ("elseif", "else", "endif") and branches:
                before, after = branches[-1]
                after |= {name: _merge(before, known, name) for name in known}
                known.clear()
                known |= before
                if call.name == "endif":
                    branches.pop()
                    known |= after
            elif call.name in self._functions:
                names, body = self._functions[call.name]
                given = _expand(call, known)
                rest = given[len(names) :]
                own = dict(zip(names, given, strict=False)) | {"ARGN": ";".join(rest)}
                self._run(body, {**known, "ARGV": ";".join(given), **own})
            elif call.name in self._does:
                self._does[call.name](_expand(call, known), known)
            elif _DISCOVERS.fullmatch(call.name):
                self._discover(_expand(call, known))
        self._depth -= 1

    def _set(self, words: list[str], known: dict[str, str]) -> None:
        if words:
            values = words[1 : words.index("CACHE") if "CACHE" in words else None]
            known[words[0]] = ";".join(one for one in values if one != "PARENT_SCOPE")

    def _list(self, words: list[str], known: dict[str, str]) -> None:
        if words[:1] in (["APPEND"], ["PREPEND"]) and len(words) > 2:
            known[words[1]] = ";".join(filter(None, (known.get(words[1], ""), *words[2:])))

    def _file(self, words: list[str], known: dict[str, str]) -> None:
        if words[:1] == ["RELATIVE_PATH"] and len(words) == 4:
            known[words[1]] = os.path.relpath(words[3], words[2])
        elif words[:1] in (["GLOB"], ["GLOB_RECURSE"]) and len(words) > 2:
            below = words[words.index("RELATIVE") + 1] if "RELATIVE" in words else ""
            here, found = known["CMAKE_CURRENT_SOURCE_DIR"], set[str]()
            for pattern in words[2:]:
                folder, _, name = os.path.join(here, pattern).rpartition("/")  # noqa: PTH118 - either may be a pattern
                deep = "**/" if words[0] == "GLOB_RECURSE" else ""
                if pattern not in (below, "RELATIVE", "CONFIGURE_DEPENDS") and "$" not in folder:
                    found |= {str(one) for one in Path("/").glob(f"{folder[1:]}/{deep}{name}")}
            known[words[1]] = ";".join(
                sorted(os.path.relpath(one, below) if below else one for one in found)
            )

    def _component(self, words: list[str], known: dict[str, str]) -> None:
        if len(words) < 3 or "${" in words[1]:
            return
        path, name = os.path.split(words[1])
        folder = known["CMAKE_CURRENT_SOURCE_DIR"]
        full = os.path.normpath(os.path.join(folder, words[1]))  # noqa: PTH118 - as CMake names it
        parts = {"NAME": name, "NAME_WE": name.partition(".")[0], "DIRECTORY": path, "PATH": path}
        known[words[0]] = parts.get(words[2], full)

    def _subdirectory(self, words: list[str], known: dict[str, str]) -> None:
        if words:
            self.enter(os.path.normpath(f"{known['CMAKE_CURRENT_SOURCE_DIR']}/{words[0]}"), known)

    def _include(self, words: list[str], known: dict[str, str]) -> None:
        if words:
            path = Path(known["CMAKE_CURRENT_SOURCE_DIR"], words[0])
            self._read(str(path), known)

    def _test(self, words: list[str], known: dict[str, str]) -> None:
        options = dict(pairwise(words))
        name, argv = (words[1], words[2:]) if words[:1] == ["NAME"] else (words[0], words[1:])
        if "COMMAND" in argv:
            argv = argv[argv.index("COMMAND") + 1 :]
        ends = [argv.index(one) for one in ("WORKING_DIRECTORY", "CONFIGURATIONS") if one in argv]
        folder = options.get("WORKING_DIRECTORY", "${CMAKE_CURRENT_BINARY_DIR}")
        argv = argv[: min(ends, default=None)]
        self.tests.append(CmakeTest(name=name, argv=tuple(argv), cwd=folder))

    def _properties(self, words: list[str], known: dict[str, str]) -> None:
        at = words.index("PROPERTIES") if "PROPERTIES" in words else len(words)
        for key, value in zip(words[at + 1 :: 2], words[at + 2 :: 2], strict=False):
            for test in words[:at] if key == "LABELS" else ():
                self._label(test, value.split(";"))

    def _property(self, words: list[str], known: dict[str, str]) -> None:
        at = words.index("PROPERTY") if "PROPERTY" in words else len(words)
        if words[:1] == ["TEST"] and words[at + 1 : at + 2] == ["LABELS"]:
            for test in words[1:at]:
                self._label(test, words[at + 2 :])

    def _label(self, name: str, labels: Sequence[str]) -> None:
        """Label the last test of that name: names that are not known are the same for several."""
        for number in range(len(self.tests) - 1, -1, -1):
            test = self.tests[number]
            if test.name == name:
                self.tests[number] = replace(test, labels=(*test.labels, *labels))
                return

    def _discover(self, words: list[str]) -> None:
        labels = words[words.index("LABELS") + 1 :][:1] if "LABELS" in words else []
        self.tests.append(CmakeTest(name="*", labels=tuple(labels)))


def _parse(text: str) -> Iterator[_Call]:
    """The calls of a file."""
    name, depth, words = "", 0, list[tuple[str, bool]]()
    for found in _TOKEN.finditer(text):
        quoted = found["quoted"] if found["raw"] is None else found["raw"]
        if found[0].startswith("#"):
            continue
        if found["sign"] == "(":
            depth, words = depth + 1, words if depth else []
        elif found["sign"] == ")":
            depth -= 1
            if not depth:
                yield _Call(name=name.lower(), words=tuple(words))
        elif depth:
            words.append((found["word"] or quoted or "", found["word"] is None))
        else:
            name = found["word"] or ""


def _expand(call: _Call, known: dict[str, str]) -> list[str]:
    """The arguments of a call: a list that is not quoted is as many as it has elements."""
    expanded: list[str] = []
    for word, is_quoted in call.words:
        text = fill_variables(word, known)
        expanded += [text] if is_quoted else [one for one in text.split(";") if one]
    return expanded


def fill_variables(text: str, known: dict[str, str]) -> str:
    """A text with the values of its variables; those that are not known stay."""
    for _ in range(DEEPEST):
        filled = _VARIABLE.sub(lambda found: known.get(found[1], found[0]), text)
        if filled == text:
            break
        text = filled
    return text.replace('\\"', '"')


def _values(words: Sequence[str], known: dict[str, str]) -> list[str]:
    """What a loop runs over; a list that is not known gives one turn whose value is not known."""
    if words[1:2] == ["RANGE"]:
        return [f"${{{words[0]}}}"]
    if words[1:2] != ["IN"]:
        return list(words[1:])
    values, is_list = list[str](), False
    for word in words[2:]:
        if word in ("LISTS", "ITEMS", "ZIP_LISTS"):
            is_list = word != "ITEMS"
        else:
            values += known.get(word, f"${{{word}}}").split(";") if is_list else [word]
    return [one for one in values if one]


def _merge(before: dict[str, str], after: dict[str, str], name: str) -> str:
    """A variable after a branch that may be taken or not: a list that it extends is extended."""
    old, new = before.get(name), after[name]
    return new if new == old or (old and new.startswith(f"{old};")) else f"${{{name}}}"


def _find_end(calls: Sequence[_Call], at: int, name: str) -> int:
    """Where the block ends that begins before ``at``."""
    depth = 1
    for number in range(at, len(calls)):
        depth += (calls[number].name == name) - (calls[number].name == f"end{name}")
        if not depth:
            return number
    return len(calls)
