"""How long tests took is read from what other tools write; bad files name file, line and key."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import ROOT

from tileyard.errors import UsageError
from tileyard.suite.imports import read_times

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


def test_the_long_tail_is_read() -> None:
    """71 testcases, 595.86 minutes."""
    times = read_times(ROOT / "tests" / "data" / "st_long_tail.csv")
    expected = (71, 595.86)
    assert (len(times), round(sum(time.seconds for time in times) / 60, 2)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("testcase,time\na,1\n", ":1: needs one column 'seconds'; its columns are testcase, time"),
        ("#\nseconds,seconds,testcase\n", ":2: needs one column 'seconds'"),
        ("testcase,seconds\na,1\nb\n", ":3: has 1 fields for 2 columns"),
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
        ("testcase,seconds\n", "says of no test how long it took"),
        ("", "is no table"),
        ("hello\nworld\n", ":1: is no table with the columns testcase and seconds"),
        (b"testcase,seconds\na,1\n\xff,2\n", ":3: is not UTF-8 text"),
        ('{"a":\n 1,,}', ":2: is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ('{\n"a": 1,\n"b": "slow"}', ":3: b: 'slow' is not a number of seconds"),
        ('{"a": true}', ":1: a: True is not a number of seconds"),
        ('{"a": {"b": 1}}', ":1: a: {'b': 1} is not a number of seconds"),
        ('{"a": 1' + "0" * 400 + "}", "is not a number of seconds"),
        ('{"::x": 1}', ":1: '::x' names no test"),
        ("[1, 2]", ":1: is not an object that holds the seconds of each test"),
        ("{}", "says of no test how long it took"),
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


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    """Files that are not there, and folders."""
    expected = "cannot read"
    with pytest.raises(UsageError, match=expected):
        read_times(tmp_path / name)


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
