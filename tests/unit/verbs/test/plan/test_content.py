"""Identities of cases: the same for the same content wherever it lies, another for any other."""

import shutil
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tileyard.base.model import (
    CommandWork,
    HotRun,
    KernelWork,
    Limits,
    OutputCheck,
    Step,
    Tolerance,
)
from tileyard.base.settings import read_settings
from tileyard.verbs.test.plan.content import Contents, NamedFiles
from tileyard.verbs.test.plan.reading import read_suite
from tileyard.verbs.test.result.result import Suite, SuiteCase

SUITE = """
name = "reductions"
[build]
argv = ["sh", "{suite}/build.sh", "-I{suite}/include", "--out={out}", "{targets}"]
target = "{testcase}"
inputs = ["kernels/*.pto"]
[golden]
argv = ["{python}", "golden.py", "{seed}", "{out}"]
[run]
argv = ["{build}/{testcase}", "{suite}/data.bin", "notes.txt", "{work}"]
[[testcase]]
name = "sum"
[[testcase]]
name = "max"
check = ["{python}", "{suite}/check.py", "{work}"]
"""
FILES = ("build.sh", "golden.py", "data.bin", "check.py", "notes.txt", "kernels/sum.pto")


def write_suite(folder: Path) -> Path:
    """A suite with its files; the folder."""
    for name in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    return folder


def read(folder: Path) -> Suite:
    """The suite of a folder."""
    return read_suite(folder, read_settings({}, folder))


def identify(folder: Path, root: Path | None = None) -> dict[str, str]:
    """The identities of the cases of a folder's suite, read anew."""
    suite = read(folder)
    contents = Contents((root or folder).resolve())
    return {case.id: contents.identify(case, Path(suite.folder)) for case in suite.cases}


def commands(**changes: object) -> SuiteCase:
    """A case of programs that names no file."""
    work = CommandWork(run=Step(argv=("true",)), build=Step(argv=("make", "{targets}")))
    fields = {name: changes.pop(name) for name in tuple(changes) if name in work.__struct_fields__}
    case = SuiteCase(testcase="t", name="c", work=replace(work, **fields))
    return replace(case, **changes)


def test_two_checkouts_of_the_same_content_agree(tmp_path: Path) -> None:
    """Where a suite lies is not part of what its cases are, though steps name its folder."""
    first = write_suite(tmp_path / "a" / "first")
    second = write_suite(tmp_path / "elsewhere")
    expected = identify(first)
    assert identify(second) == expected
    assert len(set(expected.values())) == len(expected)


def test_suites_that_share_files_agree(tmp_path: Path) -> None:
    """A case is the same whether its own suite is run, or a folder of suites that has it."""
    folder = write_suite(tmp_path / "suites" / "reductions")
    expected = identify(folder, tmp_path)
    assert identify(tmp_path / "suites", tmp_path) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("build.sh", {"sum/default", "max/default"}),
        ("kernels/sum.pto", {"sum/default", "max/default"}),
        ("kernels/new.pto", {"sum/default", "max/default"}),
        ("golden.py", {"sum/default", "max/default"}),
        ("data.bin", {"sum/default", "max/default"}),
        ("check.py", {"max/default"}),
        ("notes.txt", set()),
        ("kernels/readme", set()),
    ],
)
def test_what_steps_name_counts_by_its_content(
    tmp_path: Path, changed: str, expected: set[str]
) -> None:
    """Inputs and arguments that are files count; a run step's relative names are its own directory's."""
    folder = write_suite(tmp_path)
    before = identify(folder)
    (folder / changed).write_text("other", encoding="utf-8")
    after = identify(folder)
    assert {case for case in before if before[case] != after[case]} == expected


def test_a_step_says_in_which_folder_its_files_lie(tmp_path: Path) -> None:
    """A relative argument is looked for where the step runs."""
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "make.py"
    script.write_text("one", encoding="utf-8")
    case = commands(golden=Step(argv=("python3", "make.py"), cwd=str(tmp_path / "tools")))
    expected = (str(script),)
    named = NamedFiles()
    assert named.by_case(case, tmp_path) == expected
    assert named.by_case(commands(golden=Step(argv=("x", "make.py"))), tmp_path) == ()
    assert named.by_case(commands(run=Step(argv=("x", "make.py"), cwd="{work}")), tmp_path) == ()
    above = commands(golden=Step(argv=("x", "../tools/make.py", "./gone")))
    assert named.by_case(above, tmp_path / "tools") == expected


OTHERS = [
    commands(run=Step(argv=("false",))),
    commands(run=Step(argv=("true",), env={"A": "1"})),
    commands(run=Step(argv=("true",), cwd="{work}/data")),
    commands(run=Step(argv=("true",), inherits=("A",))),
    commands(run=Step(argv=("true",), inherits_all=True)),
    commands(build=None),
    commands(target="some"),
    commands(golden=Step(argv=("true",))),
    commands(check=Step(argv=("true",))),
    commands(outputs=(OutputCheck(file="o", golden="g", dtype="float32", shape=(2,)),)),
    commands(
        outputs=(
            OutputCheck(
                file="o",
                golden="g",
                dtype="float32",
                shape=(2,),
                tolerance=Tolerance(rtol=1.0, atol=0.0),
            ),
        )
    ),
    commands(hot=HotRun(step=Step(argv=("true",)), began="a", ended="b", verdicts={})),
    commands(hot=HotRun(step=Step(argv=("true",)), began="a", ended="c", verdicts={})),
]


def test_whatever_a_case_of_programs_does_is_part_of_it(tmp_path: Path) -> None:
    """Steps, data and judgement tell cases apart, and so does what they run on."""
    contents = Contents(tmp_path)
    found = {contents.identify(case, tmp_path) for case in [commands(), *OTHERS]}
    found.add(contents.identify(commands(), tmp_path, "npu"))
    expected = len(OTHERS) + 2
    assert len(found) == expected


def test_what_no_step_is_told_is_no_part_of_a_case(tmp_path: Path) -> None:
    """Two cases that do the same are the same, whatever they are called and however long they may take."""
    contents = Contents(tmp_path)
    expected = contents.identify(commands(), tmp_path)
    other = commands(
        testcase="other",
        name="other",
        family="f",
        dtype="float16",
        shape=(3,),
        tags=("x",),
        smoke=True,
        where="x.toml:3",
        limits=Limits(run_s=3.0),
        run=Step(argv=("true",), limit_s=7.0),
    )
    assert contents.identify(other, tmp_path) == expected


def test_the_interpreter_is_the_same_wherever_it_lies(tmp_path: Path) -> None:
    """Each checkout may have an environment of its own for the Python that runs Tileyard."""
    folder = write_suite(tmp_path)
    expected = identify(folder)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    shutil.copy(shutil.which("true") or "/bin/true", python)
    before, sys.executable = sys.executable, str(python)
    try:
        found = identify(folder)
    finally:
        sys.executable = before
    assert found == expected


def kernel(file: Path, **changes: object) -> SuiteCase:
    """A case of a kernel."""
    work = KernelWork(file=str(file), kernel="gemm", arguments={"M": 64})
    return SuiteCase(testcase="gemm", name="small", work=replace(work, **changes))


def test_what_a_kernel_is_asked_is_part_of_its_case(tmp_path: Path) -> None:
    """The file's content and every field of the request tell cases of kernels apart; their names do not."""
    file = tmp_path / "gemm.py"
    file.write_text("one", encoding="utf-8")
    cases = [
        kernel(file),
        kernel(file, kernel="other"),
        kernel(file, arguments={"M": 128}),
        kernel(file, config={"block": 32}),
        kernel(file, reference="slow"),
        kernel(file, tolerance=Tolerance(rtol=1.0, atol=0.0)),
    ]
    contents = Contents(tmp_path)
    found = {contents.identify(case, tmp_path, "cpu") for case in cases}
    found.add(contents.identify(cases[0], tmp_path, "cuda:sm_90a"))
    expected = contents.identify(cases[0], tmp_path, "cpu")
    assert contents.identify(replace(cases[0], name="big", seed=3), tmp_path, "cpu") == expected
    file.write_text("two", encoding="utf-8")
    found.add(Contents(tmp_path).identify(cases[0], tmp_path, "cpu"))
    assert len(found) == len(cases) + 2
