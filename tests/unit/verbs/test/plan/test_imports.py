"""How long tests took is read from what other tools write; bad files name file, line and key."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import ROOT

from tileyard.base.errors import UsageError
from tileyard.verbs.test.plan.imports import read_times

JUNIT = """<?xml version="1.0"?>
<testsuites>
  <testsuite name="st">
    <testcase classname="tests.test_sums" name="rows" time="12.5"/>
    <testcase name="bare" time="1,234.5"><failure>no</failure></testcase>
    <testcase classname="tests.test_sums" name="off" time="0"><skipped/></testcase>
    <testcase classname="tests.test_sums" name="unknown"/>
    <testcase classname="tests.test_sums" name="again" time="1"/>
    <testcase classname="tests.test_sums" name="again" time="2"/>
  </testsuite>
</testsuites>
"""
LOG = """
============ slowest durations ============
2.50s call     tests/test_a.py::test_x[f16-(128, 64)]
0.25s setup    tests/test_a.py::test_x[f16-(128, 64)]
1.00s call     tests/test_b.py::TestB::test_y
      Start  1: trowargmax
 1/71 Test  #1: trowargmax .......................   Passed  1493.30 sec
 2/71 Test #22: tsels ............................***Failed   12.00 sec
(3 durations < 0.005s hidden.)
"""


def read(folder: Path, text: str | bytes) -> dict[str, float]:
    """What a file of this content says."""
    path = folder / "times"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return {time.id: time.seconds for time in read_times(path)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# a comment\ntestcase,seconds,source\na,1.5,us\n\nb,0,them\n", {"a": 1.5, "b": 0.0}),
        ("case,seconds,testcase\nx,1,t\ny,2,t\n", {"t/x": 1.0, "t/y": 2.0}),
        ("\ufefftestcase, seconds\n'a', 3\n\"b,c\",4\n", {"'a'": 3.0, "b,c": 4.0}),
        ("testcase,case,seconds\nt,,5\nu,v,6\n", {"t": 5.0, "u/v": 6.0}),
        (
            '{"tests/test_a.py::test_x[1]": 0.5, "tests/test_a.py::T::test_y": 2}',
            {"tests/test_a.py/test_x[1]": 0.5, "tests/test_a.py/T::test_y": 2.0},
        ),
        ('[["tests/test_a.py::test_x", 0.5]]', {"tests/test_a.py/test_x": 0.5}),
        (
            JUNIT,
            {"tests.test_sums/rows": 12.5, "st/bare": 1234.5, "tests.test_sums/again": 2.0},
        ),
        (
            LOG,
            {
                "tests/test_a.py/test_x[f16-(128, 64)]": 2.75,
                "tests/test_b.py/TestB::test_y": 1.0,
                "trowargmax": 1493.3,
                "tsels": 12.0,
            },
        ),
    ],
)
def test_files_are_read(tmp_path: Path, text: str, expected: dict[str, float]) -> None:
    """Tables, pytest-split, JUnit XML and logs, whatever they are called."""
    assert read(tmp_path, text) == expected


GOOGLE_TEST = """[==========] Running 3 tests from 2 test suites.
[ RUN      ] Adds.Rows
[       OK ] Adds.Rows (1500 ms)
[  FAILED  ] All/Adds.Sizes/1, where GetParam() = (3, 4) (20 ms)
[----------] 2 tests from Adds (1520 ms total)
[  FAILED  ] All/Adds.Sizes/1, where GetParam() = (3, 4)
"""
LIT = """-- Testing: 2 tests, 2 workers --
PASS: Tile :: ops/add.pto (1 of 2)
Slowest Tests:
--------------------------------------------------------------------------
6.10s: Tile :: ops/add.pto
0.25s: Tile :: ops/a b.pto
"""
LIT_JSON = (
    '{"__version__": [0, 1], "elapsed": 7.0, "tests": [{"code": "PASS", "name": "Tile :: ops/add.pto",'
    ' "elapsed": 6.1}, {"code": "SKIPPED", "name": "Tile :: ops/off.pto"}]}'
)
SIMULATOR = """[INFO] run_mode=sim
[INFO] [1/3] running testcase: trowargmax
[INFO] === case: f32_16x64 (shape=16x64, valid=16x64) ===
Total tick: 590261
Model RUN TIME: 98639.5 ms
[INFO] ===== testcase tadd output begin =====
[INFO] === case: f32_16x64 (shape=16x64, valid=16x64) ===
[INFO] === case: i32_16x64 (shape=16x64, valid=16x64) ===
\x1b[32mModel RUN TIME: 2000 ms\x1b[0m
[INFO] ===== testcase tadd output end =====
[INFO] === case: f32_lost (shape=16x64, valid=16x64) ===
Model RUN TIME: 7 ms
2026-11-25T12:00:00.1234567Z # testcase: tsub
2026-11-25T12:00:00.1234567Z Model RUN TIME: 3 s
"""
OF_TOOLS = [
    (GOOGLE_TEST, {"Adds/Rows": 1.5, "All/Adds/Sizes/1": 0.02}),
    (LIT, {"Tile/ops/add.pto": 6.1, "Tile/ops/a b.pto": 0.25}),
    (LIT_JSON, {"Tile/ops/add.pto": 6.1}),
    (
        "1.250000e+00 ops/add.pto\n-5.000000e-01 ops/fails.pto\n",
        {"ops/add.pto": 1.25, "ops/fails.pto": 0.5},
    ),
    (SIMULATOR, {"trowargmax/f32_16x64": 98.6395, "tadd": 2.0, "tsub": 3.0}),
    (
        "[  2%] Built, linked\n 1/1 Test  #1: gt .....   Passed  9.00 sec\n[       OK ] A.B (12 ms)\n",
        {"gt": 9.0},
    ),
]


@pytest.mark.parametrize(("text", "expected"), OF_TOOLS)
def test_logs_of_tools_are_known_by_themselves(
    tmp_path: Path, text: str, expected: dict[str, float]
) -> None:
    """Google Test, lit and the serial simulator; what ctest runs counts once."""
    assert read(tmp_path, text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (
            r"done (?P<case>\S+) in (?P<seconds>[\d.]+)s",
            "x done a/b/c in 2.5s\ndone t in 1s\n",
            {"a/b/c": 2.5, "t": 1.0},
        ),
        (
            r"case (?P<case>\S+)|took (?P<seconds>\d+) (?P<unit>\w+)",
            "took 9 s\ncase t/a\n\ntook 1500 ms\ntook 8 s\ncase t/b\ncase t/c\ntook 2 min\n",
            {"t/a": 1.5, "t/c": 120.0},
        ),
        (
            r"suite (?P<testcase>\S+)|case (?P<case>\S+)|took (?P<seconds>\d+)",
            "case a\nsuite t\ntook 3\ncase a\ntook 1\nsuite u\ncase a\ntook 2\n",
            {"t": 3.0, "t/a": 1.0, "u/a": 2.0},
        ),
    ],
)
def test_a_pattern_finds_times_in_any_log(
    tmp_path: Path, pattern: str, text: str, expected: dict[str, float]
) -> None:
    """Names and times stand on one line or on several, in the units of the log, whatever else it holds."""
    path = tmp_path / "log"
    path.write_bytes(b"\xff\n" + text.encode())
    assert {time.id: time.seconds for time in read_times(path, pattern)} == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(", "--durations-pattern: '(' is not a regular expression: missing )"),
        ("(?P<case>x)", "--durations-pattern: '(?P<case>x)' has no group (?P<seconds>...)"),
        (
            "(?P<cases>x)(?P<seconds>1)",
            "--durations-pattern: unknown group (?P<cases>...) (did you mean 'case'",
        ),
        (
            r"(?P<case>\w+) (?P<seconds>\d+) (?P<unit>\w+)",
            "log:2: unit: 'mss' is none (did you mean 'ms'",
        ),
        (
            r"(?P<case>one) (?P<seconds>\w+)",
            "log:2: one: 'two' is not a number of seconds",
        ),
        (
            r"(?P<case>z) (?P<seconds>\d+)",
            "log:1: no line has a time by --durations-pattern '(?P<case>z) (?P<seconds>\\\\d+)': "
            "it looks like 3 lines of text that begin with 'hello'",
        ),
    ],
)
def test_bad_patterns_are_refused(tmp_path: Path, pattern: str, expected: str) -> None:
    """In one line: the option and its group, or file, line and key."""
    (tmp_path / "log").write_text("hello\na 1 mss one two\n\n")
    with pytest.raises(UsageError) as caught:
        read_times(tmp_path / "log", pattern)
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "an empty file"),
        ("hello, world\n", "1 line of text that begins with 'hello, world'"),
        ("[INFO] a\n" + "b" * 99 + "\n", "2 lines of text that begin with '[INFO] a'"),
        ("=== test session starts ===\n", "a log of pytest without --durations=0 (line 1)"),
        ("-- Testing: 3 tests, 1 workers --\n", "a log of lit without --time-tests (line 1)"),
        (
            "[==========] Running 1 test from A\n[ OK ] A.B\n",
            "a log of Google Test with --gtest_print",
        ),
        (
            "x\nModel RUN TIME: 3 ms\n",
            "a log of the simulator that names no testcase before its times",
        ),
    ],
)
def test_a_log_that_says_nothing_is_told_what_it_looks_like(
    tmp_path: Path, text: str, expected: str
) -> None:
    """In one line, with what to do about it."""
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert f"it looks like {expected}" in caught.value.message
    assert caught.value.hint.startswith("--durations-pattern")


def test_the_long_tail_is_read() -> None:
    """71 testcases, 595.86 minutes."""
    times = read_times(ROOT / "tests" / "data" / "st_long_tail.csv")
    expected = (71, 595.86)
    assert (len(times), round(sum(time.seconds for time in times) / 60, 2)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "testcase,seconds\na,\nb,2\n",
        '{"a": null, "b": 2}',
        '{"tests": [{"name": "a", "elapsed": null}, {"name": "b", "elapsed": 2}, {"name": "c"}]}',
        "<testsuite><testcase name='a' time=''/><testcase name='b' time='2'/></testsuite>",
    ],
)
def test_a_test_without_a_time_has_none(tmp_path: Path, text: str) -> None:
    """Null or nothing in its place concerns no other test."""
    assert read(tmp_path, text) == {"b/b" if text.startswith("<") else "b": 2.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("testcase,time\na,1\n", ":1: needs one column 'seconds'; its columns are testcase, time"),
        ("#\nseconds,seconds,testcase\n", ":2: needs one column 'seconds'"),
        ("testcase,seconds\na,1\nb\n", ":3: has 1 field for 2 columns"),
        ("testcase,seconds\na,soon\n", ":2: seconds: 'soon' is not a number of seconds"),
        ("testcase,seconds\na,-1\n", ":2: seconds: '-1' is not a number of seconds"),
        ("testcase,seconds\na,nan\n", ":2: seconds: 'nan' is not a number of seconds"),
        ("testcase,seconds\na,1e999\n", ":2: seconds: '1e999' is not a number of seconds"),
        ("testcase,seconds\n,1\n", ":2: testcase: is empty"),
        ("testcase,seconds\na,1\n#\na,2\n", ":4: testcase: a stands on line 2 already"),
        (
            "testcase,case,seconds\nt,x,1\nt,,2\n",
            ":3: case: lines 2 and 3 have a part of t and all of it",
        ),
        ('testcase,seconds\n"a,1\n', ":2: is not a row of a table"),
        ("testcase,seconds\n", "contains no times of tests"),
        ("", "is not a table"),
        ("hello\nworld\n", ":1: is not a table with the columns testcase and seconds"),
        (b"testcase,seconds\na,1\n\xff,2\n", ":3: is not UTF-8 text"),
        ('{"a":\n 1,,}', ":2: is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ('{\n"a": 1,\n"b": "slow"}', ":3: b: 'slow' is not a number of seconds"),
        ('{"a": true}', ":1: a: True is not a number of seconds"),
        ('{"a": {"b": 1}}', ":1: a: {'b': 1} is not a number of seconds"),
        ('{"a": 1' + "0" * 400 + "}", "is not a number of seconds"),
        ('{"::x": 1}', ":1: '::x' names no test"),
        ("[1, 2]", ":1: is not an object that holds the seconds of each test"),
        ("{}", "contains no times of tests"),
        ("<html/>", ":1: is not JUnit XML: it begins with <html>"),
        ("<testsuite>\n<testcase name='a' time='x'/>", ":2: is not XML: no element found"),
        (
            "<testsuite>\n<testcase name='a' time='x'/></testsuite>",
            ":2: time of a: 'x' is not a number of seconds",
        ),
        ("<testsuite><testcase time='1'/></testsuite>", ":1: name: a testcase has none"),
        (
            '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;">]>\n<testsuite/>',
            ":1: declares a document type",
        ),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str | bytes, expected: str) -> None:
    """In one line with file, line and key."""
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert expected in str(caught.value)
    assert str(tmp_path / "times") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"), [("missing", "cannot read"), (".", "holds no JUnit file")]
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, expected: str) -> None:
    """Files that are not there, and folders without a file of times."""
    with pytest.raises(UsageError, match=expected):
        read_times(tmp_path / name)


def test_of_a_folder_all_junit_files_count(tmp_path: Path) -> None:
    """Those of folders in it, too; of a case that several have, the last by name."""
    (tmp_path / "inner").mkdir()
    for name, seconds in (("a.xml", 1), ("inner/b.xml", 2)):
        text = f'<testsuite name="s"><testcase classname="c" name="{name[-5]}" time="{seconds}"/>'
        again = f'<testcase classname="c" name="z" time="{seconds}"/></testsuite>'
        (tmp_path / name).write_text(text + again, encoding="utf-8")
    assert {one.case: one.seconds for one in read_times(tmp_path)} == {"a": 1, "b": 2, "z": 2}


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([b"", b"testcase,seconds\n", b'{"a": ', b"[[", b"<testsuite>", b"1.0s call "]),
    st.one_of(
        st.binary(max_size=60),
        st.text(alphabet="abc,.\"'0123456789-+eE:[]{}<>/=& \n\r\t\0#", max_size=60).map(str.encode),
    ),
)
def test_no_file_is_a_bug(tmp_path: Path, start: bytes, rest: bytes) -> None:
    """Whatever a file holds, it is read or refused; what is read is a time."""
    found: dict[str, float] = {}
    refusal = ""
    try:
        found = read(tmp_path, start + rest)
    except UsageError as error:
        refusal = str(error)
    expected = 0.0
    assert all(seconds >= expected for seconds in found.values())
    assert bool(found) != bool(refusal)
    assert "\n" not in refusal
