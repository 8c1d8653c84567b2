"""Changed files and the cases that they touch: nothing that may depend on them is left out."""

from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.settings import read_settings
from tileyard.verbs.test.plan.content import (
    Change,
    Touched,
    find_root,
    find_touched,
    is_named,
    list_filters,
    parse_changed,
)
from tileyard.verbs.test.plan.reading import read_suite
from tileyard.verbs.test.result.result import Suite

SUITE = """
name = "all"
run = ["sh", "{suite}/run.sh", "{case}"]
[[testcase]]
name = "sum"
golden = { argv = ["true"], inputs = ["golden/sum.py", "data/**/*.bin"] }
case = [{ name = "a" }, { name = "b" }]
[[testcase]]
name = "max"
golden = { argv = ["true"], inputs = ["../tools", "golden/max.py"] }
[[belongs]]
files = ["../../src/sum", "../../src/*.h"]
cases = ["*/a"]
[[belongs]]
files = ["../../doc"]
cases = []
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """A suite two folders below the top of its checkout, with a program that both testcases run."""
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "tests" / "suite"
    for file in ("run.sh", "golden/sum.py", "golden/max.py", "data/x.bin", "../tools/x.cmake"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("true", encoding="utf-8")
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    return read_suite(folder, read_settings({}, tmp_path))


def touch(suite: Suite, *files: str, always: str = "", ignore: str = "") -> Touched:
    """What a change of these files touches."""
    return find_touched(
        suite,
        Change(
            root=find_root([Path(suite.folder)]),
            files=files,
            always=(always,) if always else (),
            ignore=(ignore,) if ignore else (),
        ),
    )


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("tests/suite/golden/sum.py", ("sum/a", "sum/b")),
        ("tests/suite/data/f32/deep/x.bin", ("sum/a", "sum/b")),
        ("tests/suite/data/x.bin", ("sum/a", "sum/b")),
        ("tests/tools/cmake/gone.cmake", ("max/default",)),
        ("tests/suite/run.sh", ("sum/a", "sum/b", "max/default")),
        ("doc/README.md", ()),
        ("src/sum/a.c", ("sum/a",)),
    ],
)
def test_a_file_touches_the_cases_whose_steps_name_it(
    suite: Suite, file: str, expected: tuple[str, ...]
) -> None:
    """As a file, in a folder or by a glob; also a file that is not there any more."""
    assert touch(suite, file).cases == expected


def test_files_that_nobody_names_touch_all_and_are_told(suite: Suite) -> None:
    """Wherever they are: nothing says that no case depends on them."""
    found = touch(suite, "README.md", "tests/suite/golden/max.py", "docs/a.md")
    every = tuple(case.id for case in suite.cases)
    unnamed = ("README.md", "docs/a.md")
    assert found == Touched(every, why_all="no step names README.md and 1 more", unnamed=unnamed)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("tests/suite/suite.toml", "tests/suite/suite.toml declares them"),
        ("tests/suite/cases.py", "no step names tests/suite/cases.py"),
        ("src/compiler/a.cpp", "all depend on src/compiler/a.cpp"),
    ],
)
def test_what_may_concern_all_cases_touches_all(suite: Suite, file: str, expected: str) -> None:
    """The suite's own file, files of its folder that no step names, and what is said to be."""
    found = touch(suite, "doc/README.md", file, always="src/**/*.cpp")
    assert len(found.cases) == 3
    assert found.why_all.startswith(expected)


def test_what_is_ignored_touches_nothing(suite: Suite) -> None:
    """Also where it lies in the suite's folder, or is named by a step."""
    files = ("tests/suite/README.md", "tests/suite/golden/README.md")
    expected = Touched(cases=())
    assert touch(suite, *files, ignore="**/README.md") == expected


def test_filters_are_globs_from_the_top(suite: Suite, tmp_path: Path) -> None:
    """For each family, with folders as filters of paths in workflows have them."""
    expected = {
        "sum": [
            "src/*.h",
            "src/sum",
            "tests/suite/data/**/*.bin",
            "tests/suite/golden/sum.py",
            "tests/suite/run.sh",
        ],
        "max": ["tests/suite/golden/max.py", "tests/suite/run.sh", "tests/tools/**"],
    }
    assert list_filters(suite, suite.cases, tmp_path) == expected


def test_git_prints_paths_with_and_without_quotes() -> None:
    """Empty lines and line ends of Windows are no part of a path; octal escapes are bytes."""
    text = 'a b.py\r\n\n"d\\303\\274nn.py"\n"tab\\there \\"x\\" \\\\.py"\na b.py\n'
    expected = ("a b.py", "dünn.py", 'tab\there "x" \\.py')
    assert parse_changed(text) == expected


def test_what_is_no_quoted_path_is_refused() -> None:
    """A backslash that git would not have written."""
    with pytest.raises(UsageError, match=r"is not a path as git writes it"):
        parse_changed('"a\\qb"\n')


@pytest.mark.parametrize(
    ("pattern", "file", "expected"),
    [
        ("/r/a", "/r/a", True),
        ("/r/a", "/r/a/b/c", True),
        ("/r/a", "/r/ab", False),
        ("/r/*.c", "/r/x.c", True),
        ("/r/*.c", "/r/d/x.c", False),
        ("/r/**/*.c", "/r/x.c", True),
        ("/r/**/*.c", "/r/d/e/x.c", True),
        ("/r/[ab]?/x", "/r/b1/x", True),
        ("/r/[ab]?/x", "/r/c1/x", False),
        ("/", "/r/x", True),
    ],
)
def test_patterns_mean_what_they_mean_in_steps(pattern: str, file: str, expected: bool) -> None:
    """A star stays within a folder, two of them do not, a folder stands for all in it."""
    assert is_named(file, pattern) is expected


def test_the_top_is_where_git_is(tmp_path: Path) -> None:
    """Without a checkout it is the lowest folder that has all of them."""
    folders = [tmp_path / "a" / "b", tmp_path / "a" / "c"]
    for folder in folders:
        folder.mkdir(parents=True)
    expected = tmp_path / "a"
    assert find_root(folders) == expected
    (tmp_path / ".git").write_text("gitdir: elsewhere", encoding="utf-8")
    assert find_root(folders) == tmp_path
