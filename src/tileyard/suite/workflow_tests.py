"""Which tests a command runs, as files below the top of the checkout: ``tests/test_a.py::test_b``.

pytest, unittest, ctest and lit are read; of the rest the command itself stands for its tests.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from tileyard.model import Record
from tileyard.suite.shell_commands import join_path
from tileyard.suite.workflow_programs import options_of

_PLAIN = frozenset(
    [
        "-n",
        "--numprocesses",
        "--dist",
        "--maxprocesses",
        "--junitxml",
        "--junit-xml",
        "--tb",
        "--durations",
        "--color",
        "--timeout",
        "--cov",
        "--cov-report",
        "-p",
        "-W",
        "-r",
        "-o",
        "-c",
        "--rootdir",
        "--maxfail",
        "--log-level",
        "--log-cli-level",
        "--basetemp",
        "--html",
        "--reruns",
        "--capture",
    ]
)
"""Options of pytest with a value that change how tests run, not which."""
_FLAGS = frozenset(
    [
        "-v",
        "-vv",
        "-q",
        "-x",
        "-s",
        "-l",
        "--forked",
        "--lf",
        "--ff",
        "--strict-markers",
        "--showlocals",
        "--verbose",
        "--quiet",
        "--no-header",
    ]
)
_SELECTING = frozenset({"-k", "-m"})
_DROPPED = frozenset({"--ignore", "--deselect", "--ignore-glob"})
_COMMENT = re.compile(r"#[^\n]*")
_CALL = re.compile(r"(\w+)\s*\(((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*)\)")
_WORDS = re.compile(r'"([^"]*)"|([^\s"]+)')


class Tests(Record):
    """What a command runs. Commands of another ``variant`` run something else; ``select`` narrows it in their own words."""

    ids: tuple[str, ...]
    variant: tuple[str, ...] = ()
    select: tuple[str, ...] = ()


def covered(ids: Sequence[str], others: frozenset[str]) -> tuple[str, ...]:
    """Those of the ids that one of the others is, or stands for: a folder for its files, a file for its tests."""
    return tuple(one for one in ids if any(part in others for part in _parents(one)))


def _parents(test: str) -> Iterator[str]:
    yield test
    while cut := max(
        test.rfind("["), test.rfind("::"), test.rfind("/") if "::" not in test else -1, 0
    ):
        test = test[:cut]
        yield test


def read_pytest(words: Sequence[str], cwd: str) -> Tests:
    """The tests of pytest with these arguments."""
    ids: list[str] = []
    variant: list[str] = []
    select: list[str] = []
    dropped: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            ids.append(join_path(cwd, word))
            continue
        takes = name in _PLAIN or name in _SELECTING or name in _DROPPED
        if takes and not equals and rest:
            value = rest.pop(0)
        if name in _SELECTING:
            select.append(f"{name} {value}")
        elif name in _DROPPED:
            dropped.append(join_path(cwd, value))
        elif name not in _PLAIN and name not in _FLAGS and not re.match(r"-[nprvqx]\w*$", word):
            if (
                not equals
                and rest
                and not rest[0].startswith("-")
                and not Path(join_path(cwd, rest[0])).exists()
                and "/" not in rest[0]
            ):
                word += f"={rest.pop(0)}"
            variant.append(word)
    files = [one for path in ids or [cwd] for one in _list_files(path, ("test_*.py", "*_test.py"))]
    kept = [one for one in files if not covered([one], frozenset(dropped))]
    for one in select:
        if re.fullmatch(r"-k \w+( or \w+)*", one):
            names = one[3:].lower().split(" or ")
            kept = [test for test in kept if any(name in _names_in(test) for name in names)]
    return Tests(
        ids=tuple(dict.fromkeys(kept)), variant=tuple(sorted(variant)), select=tuple(select)
    )


def _names_in(test: str) -> str:
    """All that ``-k`` might look for: the id, and the text of its file."""
    path = Path(test.partition("::")[0])
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return f"{test}\n{text}".lower()


def read_unittest(words: Sequence[str], cwd: str) -> Tests:
    """The tests of ``python -m unittest`` with these arguments."""
    plain = [word for word in words if not word.startswith("-")]
    if plain[:1] == ["discover"] or not plain:
        options = options_of(words)
        named = [
            word
            for word in plain[1:]
            if word not in options.values() or options.get("discover") == word
        ]
        start = (
            options.get("-s") or options.get("--start-directory") or (named[0] if named else ".")
        )
        pattern = options.get("-p") or options.get("--pattern") or "test*.py"
        return Tests(ids=tuple(_list_files(join_path(cwd, start), (pattern,))))
    return Tests(ids=tuple(_module(word, cwd) for word in plain if not re.fullmatch(r"\d+", word)))


def _module(word: str, cwd: str) -> str:
    """``tests.test_a.Case.test_b`` as pytest would write it."""
    if "/" in word:
        return join_path(cwd, word)
    parts = word.split(".")
    for length in range(len(parts), 0, -1):
        path = join_path(cwd, "/".join(parts[:length]))
        if Path(f"{path}.py").is_file():
            return "::".join((f"{path}.py", *parts[length:]))
    return join_path(cwd, "/".join(parts)) + (
        "" if Path(join_path(cwd, "/".join(parts))).is_dir() else ".py"
    )


def read_ctest(words: Sequence[str], tree: str) -> Tests:
    """The tests of ``ctest`` on what was built of a tree, by the names and labels in its CMakeLists.txt."""
    options = options_of(words)
    label, name = options.get("-L", ""), options.get("-R", "")
    without = options.get("-E", ""), options.get("-LE", "")
    found = [
        test
        for names, labels, test in _list_ctests(tree)
        if _fits(name, names) and _fits(label, labels)
        and not (without[0] and _fits(without[0], names)) and not (without[1] and _fits(without[1], labels))
    ]  # fmt: skip
    said = tuple(f"{key} {options[key]}" for key in ("-L", "-R", "-E", "-LE") if key in options)
    return (
        Tests(ids=tuple(dict.fromkeys(found)))
        if found
        else Tests(ids=(f"ctest of {tree}",), variant=said)
    )


def _fits(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


@lru_cache(maxsize=64)
def _list_ctests(tree: str) -> tuple[tuple[str, str, str], ...]:
    """Name, labels and file of each ``add_test``. One in a function stands for the test files that its
    CMakeLists.txt looks for with ``file(GLOB ...)``."""
    found: list[tuple[str, str, str]] = []
    top = Path(tree)
    for path in sorted(top.rglob("CMakeLists.txt")) if top.is_dir() else ():
        text = _COMMENT.sub("", path.read_text(encoding="utf-8", errors="replace"))
        calls = [
            (call[1].lower(), [a or b for a, b in _WORDS.findall(call[2])])
            for call in _CALL.finditer(text)
        ]
        labels = {
            words[0]: words[words.index("LABELS") + 1]
            for name, words in calls
            if name == "set_tests_properties" and "LABELS" in words[:-1]
        }
        globs = [
            one.name
            for name, words in calls if name == "file" and words[:1] == ["GLOB"]
            for word in words if "*" in word and word.endswith(".py")
            for one in sorted(path.parent.glob(Path(word).name))
        ]  # fmt: skip
        for name, words in calls:
            if name != "add_test" or not words:
                continue
            test = words[1] if words[0] == "NAME" and len(words) > 1 else words[0]
            scripts = [word for word in words if word.endswith((".py", ".sh"))]
            if "${" in test:
                files = [str(path.parent / one) for one in globs]
            else:
                files = [one for word in scripts for one in _find_script(word, path.parent, top)]
            shown = (
                [Path(one).stem for one in files] if "${" in test else [test] * max(1, len(files))
            )
            for number, one in enumerate(shown):
                file = files[number] if files else f"ctest {test} of {tree}"
                found.append((one, labels.get(test, ""), file))
    return tuple(found)


def _find_script(word: str, folder: Path, top: Path) -> list[str]:
    """The script that a test of CMake runs, where its folder can be told."""
    for mark, place in (("CURRENT_SOURCE_DIR}", folder), ("SOURCE_DIR}", top)):
        if (
            mark in word
            and (path := Path(os.path.normpath(f"{place}{word.rpartition(mark)[2]}"))).is_file()
        ):
            return [str(path)]
    return [str(one) for one in sorted(top.rglob(Path(word).name))[:1]]


def list_under(path: str) -> list[str]:
    """The Python files of tests below a folder, or the path itself."""
    return _list_files(path, ("test_*.py", "*_test.py"))


def _list_files(path: str, patterns: Iterable[str]) -> list[str]:
    if not Path(path).is_dir():
        return [path]
    found = [
        os.path.join(folder, file)  # noqa: PTH118 - thousands of files
        for folder, folders, files in os.walk(path)
        if not folders.sort()
        for file in sorted(files)
        if any(fnmatch(file, pattern) for pattern in patterns)
    ]
    return found or [path]
