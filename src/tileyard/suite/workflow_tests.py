"""Which tests a command runs, as files relative to the top of the checkout: ``tests/test_a.py::test_b``.

pytest, unittest, ctest and lit are read; any other command counts as one test.
"""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from tileyard.model import Record
from tileyard.suite.shell_commands import join_path

_VALUES = frozenset(
    """
    -n --numprocesses --dist --junitxml --junit-xml --tb --durations --color --timeout --cov
    --cov-report -p -W -r -o -c --rootdir --maxfail --log-level --basetemp --html --reruns
    --capture
    """.split()  # noqa: SIM905 - a list of words, not of quotes
)
"""Options of pytest with a value that change how tests run, not which tests."""
_FLAGS = re.compile(
    r"-[vqxsl]+|-[nprW]\S+|--(forked|lf|ff|strict-markers|showlocals|verbose|quiet|no-header)"
    r"|--(junit-?xml|tb|durations|color|timeout|cov|cov-report|maxfail|log-level)=.*"
)
_CALL = re.compile(r"(\w+)\s*\(((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*)\)")
_PATTERNS = ("test_*.py", "*_test.py")


class Tests(Record):
    """The tests of a command. Commands of another ``variant`` run something else; ``select`` narrows it in their own words."""

    ids: tuple[str, ...]
    variant: tuple[str, ...] = ()
    select: tuple[str, ...] = ()


def list_covered(ids: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """The ids that one of the others equals or contains: a folder its files, a file its tests."""
    known = frozenset(others)
    return tuple(one for one in ids if any(part in known for part in _parents(one)))


def _parents(test: str) -> Iterator[str]:
    yield test
    while found := re.fullmatch(r"(.+)(?:\[.*\]|::.*?)|([^:]+)/.*?", test):
        test = found[1] or found[2]
        yield test


def read_pytest(words: Sequence[str], cwd: str) -> Tests:
    """The tests of pytest with these arguments."""
    ids, variant, select, dropped = list[str](), list[str](), list[str](), list[str]()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-k", "-m", "--ignore", "--deselect", "--ignore-glob"):
            value = value if equals or not rest else rest.pop(0)
            select += [f"{name} {value}"] if name in ("-k", "-m") else []
            dropped += [] if name in ("-k", "-m") else [join_path(cwd, value)]
        elif word in _VALUES:
            rest = rest[1:]
        elif not word.startswith("-"):
            ids.append(join_path(cwd, word))
        elif not _FLAGS.fullmatch(word):
            has_value = rest and not equals and not re.match(r"-|.*[/.]", rest[0])
            variant.append(f"{word}={rest.pop(0)}" if has_value else word)
    files = [one for path in ids or [cwd] for one in list_files(path)]
    kept = [one for one in files if not list_covered([one], dropped)]
    return Tests(
        ids=tuple(dict.fromkeys(kept)), variant=tuple(sorted(variant)), select=tuple(select)
    )


def read_unittest(words: Sequence[str], cwd: str) -> Tests:
    """The tests of ``python -m unittest`` with these arguments."""
    options = dict(pairwise(words))
    plain = [word for word in words if not word.startswith("-") and word != "discover"]
    if "discover" in words or not plain:
        start = options.get("-s") or options.get("--start-directory") or (plain or ["."])[0]
        pattern = options.get("-p") or options.get("--pattern") or "test*.py"
        return Tests(ids=tuple(list_files(join_path(cwd, start), (pattern,))))
    return Tests(ids=tuple(_find_module(word, cwd) for word in plain))


def _find_module(word: str, cwd: str) -> str:
    """``tests.test_a.Case.test_b`` in pytest's notation."""
    parts = word.split(".")
    for length in range(len(parts), 0, -1):
        path = join_path(cwd, "/".join(parts[:length]))
        if Path(f"{path}.py").is_file():
            return "::".join((f"{path}.py", *parts[length:]))
    return join_path(cwd, word)


def read_ctest(words: Sequence[str], tree: str) -> Tests:
    """The tests of ``ctest`` on a tree's build, by the names and labels in its CMakeLists.txt."""
    options = dict(pairwise(words))
    said = tuple(f"{key} {options[key]}" for key in ("-L", "-R", "-E", "-LE") if key in options)
    found = [
        test
        for name, labels, test in _list_ctests(tree)
        if _fits(options.get("-R", ""), name)
        and _fits(options.get("-L", ""), labels)
        and not _fits(options.get("-E", "$^"), name)
        and not _fits(options.get("-LE", "$^"), labels)
    ]
    if not found:
        return Tests(ids=(f"ctest of {tree}",), variant=said)
    return Tests(ids=tuple(dict.fromkeys(found)))


def _fits(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


@lru_cache(maxsize=64)
def _list_ctests(tree: str) -> list[tuple[str, str, str]]:
    """Name, labels and file of each ``add_test``."""
    found: list[tuple[str, str, str]] = []
    for path in sorted(Path(tree).rglob("CMakeLists.txt")):
        text = re.sub(r"#[^\n]*", "", path.read_text(encoding="utf-8", errors="replace"))
        calls = [
            (call[1].lower(), re.sub('"', " ", call[2]).split()) for call in _CALL.finditer(text)
        ]
        labels = {
            words[0]: words[-1]
            for name, words in calls
            if name == "set_tests_properties" and "LABELS" in words
        }
        for name, words in calls:
            if name == "add_test" and words:
                test = words[1] if words[0] == "NAME" else words[0]
                script = next((word for word in words if word.endswith((".py", ".sh"))), "")
                file = script.replace("${CMAKE_CURRENT_SOURCE_DIR}", str(path.parent))
                file = file.replace("${CMAKE_SOURCE_DIR}", tree)
                file = os.path.normpath(path.parent / file) if script else f"ctest {test} of {tree}"
                found.append((test, labels.get(test, ""), file))
    return found


def walk(path: Path | str) -> Iterator[tuple[str, list[str], list[str]]]:
    """``os.walk`` of sources only: without hidden folders, caches, builds and installed packages."""
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__")) and name not in ("build", "node_modules", "venv")
        )
        yield folder, folders, files


def list_files(path: str, patterns: Sequence[str] = _PATTERNS) -> list[str]:
    """The Python files of tests below a folder, or the path itself."""
    found = sorted(
        os.path.join(folder, file)  # noqa: PTH118 - thousands of files
        for folder, _, files in walk(path)
        for file in files
        if any(fnmatch(file, pattern) for pattern in patterns)
    )
    return found or [path]
