"""Files that the steps of a suite name and that are not there are refused before anything runs."""

from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.settings import read_settings
from tileyard.verbs.test.plan.reading import read_suite
from tileyard.verbs.test.result.result import Suite

SUITE = """\
name = "s"
run = {{ argv = ["{{build}}/{{testcase}}"] }}
testcase = [{{ name = "tadd" }}, {{ name = "trow" }}]
check = ["{python}", {script}"]
[build]
argv = ["true", "{{targets}}"]
target = "{{testcase}}"
inputs = [{inputs}]
target_inputs = [{target}]
"""
FILES = ("tests/tadd/tadd.cpp", "tests/tadd/tadd.pto", "tests/trow/trow.cpp", "tests/common.h")
INPUTS, TARGET = '"tests/*.h"', '"tests/{testcase}/*.cpp"'
CHECK = '"{suite}/tests/common.h'


def read(folder: Path, inputs: str, target: str, check: str = CHECK, program: str = "sh") -> Suite:
    """A suite of two programs whose build step names these files."""
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    text = SUITE.format(inputs=inputs, target=target, script=check, python=program)
    (folder / "suite.toml").write_text(text, encoding="utf-8")
    return read_suite(folder, read_settings({}, folder))


@pytest.mark.parametrize(
    ("inputs", "target"),
    [
        (INPUTS, TARGET),
        (f'"tests/", {INPUTS}', '"tests/{testcase}"'),
        (INPUTS, f'{TARGET}, "tests/{{testcase}}/*.pto"'),
        ("", '"tests/{testcase}/{testcase}.cpp"'),
    ],
    ids=["globs", "folders", "one that only some testcases have", "paths"],
)
def test_inputs_that_are_there_are_read(tmp_path: Path, inputs: str, target: str) -> None:
    """A pattern that depends on the testcase may match nothing for one of them that has other files."""
    cases = 2
    assert len(read(tmp_path, inputs, target).cases) == cases


@pytest.mark.parametrize(
    ("inputs", "target", "problem"),
    [
        (INPUTS, '"tests/{testcase}/*.cc"', "9: build.target_inputs[0]: tests/tadd/*.cc matches"),
        (INPUTS, '"tests/{testcase}/*.pto"', "9: build.target_inputs[0]: tests/trow/*.pto matches"),
        (
            INPUTS,
            f'{TARGET}, "tests/{{testcase}}/*.s"',
            "9: build.target_inputs[1]: tests/tadd/*.s matches no file"
            " (tests/tadd contains tadd.cpp, tadd.pto)",
        ),
        (
            f'{INPUTS}, "test/*.h"',
            TARGET,
            "8: build.inputs[1]: test/*.h matches no file (did you mean 'tests'?)",
        ),
        (
            '"tests/comon.h"',
            TARGET,
            "8: build.inputs[0]: tests/comon.h matches no file (did you mean 'common.h'?)",
        ),
        ('"tests/*"', TARGET, ""),
        ('"*"', TARGET, ""),
        ('"tests/t*"', TARGET, "8: build.inputs[0]: tests/t* matches no file"),
    ],
)
def test_a_pattern_that_matches_no_file_is_refused(
    tmp_path: Path, inputs: str, target: str, problem: str
) -> None:
    """With file, line, key, and the nearest names: otherwise an edited source would seem proven."""
    if not problem:
        assert read(tmp_path, inputs, target)
        return
    with pytest.raises(UsageError) as refused:
        read(tmp_path, inputs, target)
    said = str(refused.value).replace(f"{tmp_path}/", "")
    assert said.startswith(f"suite.toml:{problem}")


@pytest.mark.parametrize("program", ["sh", "{python}"])
@pytest.mark.parametrize("options", ["", '"-u", '])
def test_a_script_that_is_not_there_is_refused(tmp_path: Path, program: str, options: str) -> None:
    """Else its interpreter's exit status would say that every result is wrong."""
    assert read(tmp_path, INPUTS, TARGET, f"{options}{CHECK}", program)
    with pytest.raises(UsageError) as refused:
        read(tmp_path, INPUTS, TARGET, f'{options}"{{suite}}/tests/commn.h', program)
    expected = "tests/commn.h (did you mean 'common.h'?)"
    place = f"suite.toml:4: check[{2 if options else 1}]"
    assert str(refused.value).replace(f"{tmp_path}/", "") == (
        f"{place}: there is no script {expected}"
    )


@pytest.mark.parametrize("check", ['"-c", "{suite}/absent', '"{suite}/{case}/../tests/common.h'])
def test_what_may_be_no_script_is_left_alone(tmp_path: Path, check: str) -> None:
    """Code, and what the case decides, where it is there."""
    (tmp_path / "default").mkdir()
    assert read(tmp_path, INPUTS, TARGET, check)
