"""Which tests a command runs, as files relative to the top of the checkout: ``tests/test_a.py::test_b``.

pytest, unittest, ctest and lit are read; any other command counts as one test.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import lru_cache
from itertools import dropwhile, pairwise
from pathlib import Path

from tileyard.base.model import Record
from tileyard.verbs.ci.plan.cmake_tests import CmakeTest, list_cmake_tests
from tileyard.verbs.ci.plan.shell_commands import join_path

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
_PATTERNS = ("test_*.py", "*_test.py")


class Tests(Record):
    """The tests of a command. Another ``variant`` runs something else; ``select`` narrows it in its own
    words. Unless it ``is_seen`` it runs more than its ids, or these only name what it runs.
    """

    ids: tuple[str, ...]
    variant: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    is_seen: bool = True


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


def read_ctest(
    words: Sequence[str],
    tree: str,
    flags: Mapping[str, str],
    find: Callable[[list[str], str], Tests | None],
) -> Tests:
    """The tests of ``ctest`` on a tree's build with these flags; ``find`` gives those that a test's command
    runs. A test of no known tool is called by its script, or else by its name.
    """
    options = dict(pairwise(words))

    def wanted(*names: str) -> str:
        return next((options[name] for name in names if name in options), "")

    ids, is_seen = list[str](), True
    label, unlabel = wanted("-L", "--label-regex"), wanted("-LE", "--label-exclude")
    name, unname = wanted("-R", "--tests-regex"), wanted("-E", "--exclude-regex")
    for test in list_cmake_tests(tree, tuple(sorted(flags.items()))):
        is_named = "$" not in test.name and test.name != "*"
        labels = test.labels or ("",)
        fits = _fits(label, labels) and not (unlabel and _fits(unlabel, labels))
        if fits and not is_named and (name or unname or not test.argv):
            is_seen = False  # only a build knows its name
        elif fits and _fits(name, (test.name,)) and not (unname and _fits(unname, (test.name,))):
            ids += _list_inner(test, tree, find)
    said = (f"-L {label}", f"-LE {unlabel}", f"-R {name}", f"-E {unname}")
    if not ids:
        variant = tuple(one for one in said if not one.endswith(" "))
        return Tests(ids=(f"ctest of {tree}",), variant=variant, is_seen=False)
    return Tests(ids=tuple(dict.fromkeys(ids)), is_seen=is_seen)


def _list_inner(
    test: CmakeTest, tree: str, find: Callable[[list[str], str], Tests | None]
) -> tuple[str, ...]:
    argv = list(test.argv)
    if argv[1:3] == ["-E", "env"]:
        argv = list(dropwhile(lambda word: "=" in word or word.startswith("-"), argv[3:]))
    inner = find(argv, test.cwd) if argv else None
    is_plain = inner is not None and not inner.variant and not inner.select
    ids = inner.ids if inner is not None and is_plain else ()
    if ids and all(Path(one.partition("::")[0]).exists() for one in ids):
        return ids
    return (find_script(argv, test.cwd) or f"ctest {test.name} of {tree}",)


def find_script(argv: Sequence[str], cwd: str) -> str:
    """The script that a command runs, itself or by an interpreter; empty if there is none."""
    paths = (join_path(cwd, word) for word in argv[:3] if re.search(r"\.(py|sh)$", word))
    return next((path for path in paths if Path(path).is_file()), "")


@lru_cache(maxsize=64)
def list_scripts(tree: str) -> frozenset[str]:
    """The scripts that are tests of ctest."""
    return frozenset(find_script(test.argv[-3:], test.cwd) for test in list_cmake_tests(tree))


def _fits(pattern: str, texts: Iterable[str]) -> bool:
    try:
        return any(re.search(pattern, text) is not None for text in texts)
    except re.error:
        return False


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
