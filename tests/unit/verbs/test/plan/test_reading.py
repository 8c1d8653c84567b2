"""Suite files become suites: defaults, overrides, templates, lists, includes."""

import binascii
import os
from pathlib import Path

from tileyard.base.model import CommandWork, Limits, OutputCheck, Step, Tolerance
from tileyard.base.settings import Settings
from tileyard.verbs.test.plan.reading import read_draft, read_suite
from tileyard.verbs.test.result.result import Suite, SuiteCase

SUITE = """
name = "reductions"
dtype = "float32"
env = { OMP_NUM_THREADS = "{threads}", MODE = "sim" }
limits = { run_s = 30 }

[build]
argv = ["python3", "build.py", "{targets}"]
target = "{testcase}-{case}"
inputs = ["src/*.cpp", "/usr/include/math.h"]

[golden]
argv = ["python3", "golden.py", "--seed", "{seed}", "--op", "{op}", "{{}}"]
env = { MODE = "golden" }

[run]
argv = ["{build}/sim", "{suite}/run.cfg", "{work}"]

[output]
file = "{case}.bin"
golden = "want.bin"

[[testcase]]
name = "rowsum"
family = "sum"
tags = ["rows"]
eps = 1e-3
vars = { op = "sum" }

[[testcase.case]]
name = "small"
shape = [4, 8]
valid_shape = [4, 7]
tags = ["quick"]
smoke = true

[[testcase.case]]
name = "half"
dtype = "f16"
shape = [64, 8]
rtol = 0.5
seed = 7
limits = { run_s = 90, build_s = 5 }
vars = { op = "half sum" }
"""


def write(folder: Path, text: str, name: str = "suite.toml") -> Path:
    """A suite file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "a.cpp").touch()
    return path


def work_of(case: SuiteCase) -> CommandWork:
    """The work of a case of programs."""
    assert isinstance(case.work, CommandWork)
    return case.work


def cases_of(suite: Suite) -> dict[str, SuiteCase]:
    """The cases by their ids."""
    return {case.id: case for case in suite.cases}


def test_a_case_is_what_suite_testcase_and_row_say_together(
    tmp_path: Path, settings: Settings
) -> None:
    """The narrower table wins, tags add up, and a seed that is not stated is the name's crc32."""
    suite = read_suite(write(tmp_path, SUITE), settings)
    small, half = suite.cases
    line = SUITE.split("\n").index("[[testcase.case]]") + 1
    expected = SuiteCase(
        testcase="rowsum",
        name="small",
        work=small.work,
        family="sum",
        dtype="float32",
        shape=(4, 8),
        tags=("rows", "quick"),
        smoke=True,
        seed=binascii.crc32(b"small"),
        limits=Limits(run_s=30, memory_bytes=0),
        where=f"{tmp_path}/suite.toml:{line}",
    )
    assert small == expected
    assert (half.id, half.dtype, half.seed, half.smoke) == ("rowsum/half", "f16", 7, False)
    assert half.limits == Limits(run_s=90, build_s=5, memory_bytes=0)
    assert (suite.name, suite.folder) == ("reductions", str(tmp_path))


def test_templates_keep_only_what_is_known_later(tmp_path: Path, settings: Settings) -> None:
    """Places stay, braces meant as such stay doubled, a step's variables win over the suite's."""
    suite = read_suite(write(tmp_path, SUITE), settings)
    work = work_of(suite.cases[1])
    expected = CommandWork(
        build=Step(
            argv=("python3", "build.py", "{targets}"),
            env={"OMP_NUM_THREADS": "{threads}", "MODE": "sim"},
            inputs=(f"{tmp_path}/src/*.cpp", "/usr/include/math.h"),
        ),
        target="rowsum-half",
        golden=Step(
            argv=("python3", "golden.py", "--seed", "7", "--op", "half sum", "{{}}"),
            env={"OMP_NUM_THREADS": "{threads}", "MODE": "golden"},
        ),
        run=Step(
            argv=("{build}/sim", f"{tmp_path}/run.cfg", "{work}"),
            env={"OMP_NUM_THREADS": "{threads}", "MODE": "sim"},
        ),
        outputs=(
            OutputCheck(
                file="half.bin",
                golden="want.bin",
                dtype="float16",
                shape=(64, 8),
                tolerance=Tolerance(rtol=0.5, atol=0.0),
            ),
        ),
    )
    assert work == expected
    assert work_of(suite.cases[0]).outputs[0].valid_shape == (4, 7)
    assert work_of(suite.cases[0]).outputs[0].tolerance == Tolerance(rtol=1e-3, atol=1e-3)


def test_a_testcase_takes_the_place_of_a_step_or_does_without(
    tmp_path: Path, settings: Settings
) -> None:
    """A step of a testcase stands for the suite's; ``false`` and an empty list stand for none."""
    more = """
[[testcase]]
name = "own"
build = false
golden = false
output = []
run = ["python3", "own.py"]
check = { argv = ["python3", "check.py"], cwd = "checks", limit_s = 2 }
"""
    suite = read_suite(write(tmp_path, SUITE + more), settings)
    work = work_of(cases_of(suite)["own/default"])
    env = {"OMP_NUM_THREADS": "{threads}", "MODE": "sim"}
    expected = CommandWork(
        run=Step(argv=("python3", "own.py"), env=env),
        check=Step(argv=("python3", "check.py"), env=env, cwd=f"{tmp_path}/checks", limit_s=2.0),
    )
    assert work == expected


def test_values_with_braces_stay_values(tmp_path: Path, settings: Settings) -> None:
    """A value that is filled in is not looked at again, and later stands for itself."""
    text = """
name = "s"
[[testcase]]
name = "t"
run = ["python3", "{text}", "{work}"]
vars = { text = "{work} {x}" }
"""
    suite = read_suite(write(tmp_path, text), settings)
    expected = ("python3", "{{work}} {{x}}", "{work}")
    assert work_of(suite.cases[0]).run.argv == expected


def test_shapes_of_outputs_may_follow_from_values(tmp_path: Path, settings: Settings) -> None:
    """A reduction's output has another shape than its case, written with the case's values."""
    text = """
name = "s"
dtype = "int32"
[[testcase]]
name = "t"
run = ["python3", "run.py"]
[[testcase.output]]
file = "sum.bin"
golden = "want_sum.bin"
shape = "{rows}x1"
[[testcase.output]]
file = "at.bin"
golden = "want_at.bin"
shape = "{valid_shape}"
dtype = "int64"
nan = "forbid"
[[testcase.case]]
name = "c"
shape = [4, 8]
valid_shape = [3, 8]
vars = { rows = 4 }
"""
    suite = read_suite(write(tmp_path, text), settings)
    outputs = work_of(suite.cases[0]).outputs
    expected = [("int32", (4, 1), ()), ("int64", (3, 8), ())]
    assert [(one.dtype, one.shape, one.valid_shape) for one in outputs] == expected
    assert [one.nan for one in outputs] == ["equal", "forbid"]


LISTED = """
name = "listed"
list = ["{python}", "cases.py"]
run = ["python3", "{suite}/{testcase}.py", "{case}"]
[[testcase]]
name = "b"
tags = ["declared"]
[[testcase.case]]
name = "own"
"""

LISTER = """
import json, sys
sys.stderr.write("chatter")
for name, testcase in (("x", "b"), ("y", "a"), ("z", "b")):
    print(json.dumps({"name": name, "testcase": testcase, "where": f"cases.py:{name}", "shape": None}))
print()
"""


def test_a_command_lists_cases(tmp_path: Path, settings: Settings) -> None:
    """Rows join the testcase that they name, declared or not, and say where they stand."""
    write(tmp_path, LISTER, "cases.py")
    for name in ("a.py", "b.py"):
        write(tmp_path, "", name)
    suite = read_suite(write(tmp_path, LISTED), settings)
    expected = ["b/own", "b/x", "b/z", "a/y"]
    assert [case.id for case in suite.cases] == expected
    assert [case.where for case in suite.cases[1:]] == ["cases.py:x", "cases.py:z", "cases.py:y"]
    assert [case.tags for case in suite.cases][2:] == [("declared",), ()]
    assert work_of(suite.cases[3]).run.argv == ("python3", f"{tmp_path}/a.py", "y")


def test_a_list_of_one_testcase_needs_no_names_of_testcases(
    tmp_path: Path, settings: Settings
) -> None:
    """A testcase's own list knows its testcase, and finds its files whatever the working directory."""
    text = """
name = "s"
[[testcase]]
name = "t"
run = ["python3", "run.py"]
list = { argv = ["{python}", "cases.py", "{testcase}"], cwd = "tools", env = { N = "2" } }
"""
    script = (
        "import json, os, sys\n"
        "for n in range(int(os.environ['N'])): print(json.dumps({'name': sys.argv[1] + str(n)}))"
    )
    write(tmp_path, script, "tools/cases.py")
    suite = read_suite(write(tmp_path, text), settings)
    expected = ["t/t0", "t/t1"]
    assert [case.id for case in suite.cases] == expected


def plain(name: str, *, top: str = "") -> str:
    """A suite with one testcase of one case, both called the same."""
    return f"""
name = "{name}"
{top}
[golden]
argv = ["python3", "golden.py"]
[run]
argv = ["python3", "run.py"]
[[testcase]]
name = "{name}"
"""


def test_a_suite_includes_others(tmp_path: Path, settings: Settings) -> None:
    """Included files keep their own folders; what two of them include is there once."""
    write(tmp_path, plain("base"), "base.toml")
    write(tmp_path, plain("sub", top='include = ["../base.toml"]'), "sub/suite.toml")
    path = write(tmp_path, plain("top", top='include = ["base.toml", "s*/suite.toml"]'))
    suite = read_suite(path, settings)
    expected = ["base/default", "sub/default", "top/default"]
    assert [case.id for case in suite.cases] == expected
    golden = [work_of(case).golden for case in suite.cases]
    assert [step.cwd for step in golden if step] == ["", f"{tmp_path}/sub", ""]


def test_a_folder_of_folders_is_a_suite(tmp_path: Path, settings: Settings) -> None:
    """Without a file of its own, a folder holds the testcases of the folders in it."""
    write(tmp_path, plain("b"), "tree/two/suite.toml")
    write(tmp_path, plain("a"), "tree/one/suite.toml")
    suite = read_suite(tmp_path / "tree", settings)
    expected = ["a/default", "b/default"]
    assert [case.id for case in suite.cases] == expected
    assert (suite.name, suite.folder) == ("tree", f"{tmp_path}/tree")


def test_lists_and_policies_are_read(tmp_path: Path, settings: Settings) -> None:
    """Rules have reasons, quarantines an end, and the including file's policies win."""
    base = plain("base") + '[policies.fast]\nbudget_s = 5\n[[skip]]\ncases = "x"\nreason = "r"\n'
    write(tmp_path, base, "base.toml")
    text = (
        plain("top", top='include = ["base.toml"]')
        + """
[policies.fast]
select = "smoke"
tags = ["quick"]
[policies.nightly]
retries = 2
[[allow]]
cases = "*"
reason = "all"
[[quarantine]]
cases = "top/*"
owner = "ana"
reason = "flaky"
until = 2026-12-01
[[quarantine]]
cases = "base/*"
owner = "bo"
reason = "slow"
until = "2027-01-31"
"""
    )
    suite = read_suite(write(tmp_path, text), settings)
    expected = ["2026-12-01", "2027-01-31"]
    assert [str(entry.until) for entry in suite.quarantine] == expected
    assert (suite.policies["fast"].select, suite.policies["fast"].budget_s) == ("smoke", 0.0)
    assert (suite.policies["nightly"].name, suite.policies["nightly"].retries) == ("nightly", 2)
    assert [rule.reason for rule in (*suite.allow, *suite.skip)] == ["all", "r"]


def test_programs_of_the_suite_are_called_by_their_paths(
    tmp_path: Path, settings: Settings
) -> None:
    """A program beside the suite file is found whatever the working directory."""
    program = write(tmp_path, "#!/bin/sh\n", "tools/run.sh")
    program.chmod(0o755)
    text = plain("s").replace('["python3", "run.py"]', '["tools/run.sh"]')
    before = Path.cwd()
    os.chdir("/")
    try:
        suite = read_suite(write(tmp_path, text), settings)
    finally:
        os.chdir(before)
    expected = (str(program),)
    assert work_of(suite.cases[0]).run.argv == expected


def test_working_directories_begin_where_a_place_says(tmp_path: Path, settings: Settings) -> None:
    """A folder below a place is known later, any other one is relative to the suite file."""
    text = """
name = "s"
[golden]
argv = ["python3", "golden.py"]
cwd = "{out}/data"
[run]
argv = ["python3", "run.py"]
cwd = "/tmp"
[check]
argv = ["python3", "check.py"]
cwd = "tools/{testcase}"
[[testcase]]
name = "t"
"""
    work = work_of(read_suite(write(tmp_path, text), settings).cases[0])
    expected = ("{out}/data", "/tmp", f"{tmp_path}/tools/t")
    assert work.golden is not None
    assert work.check is not None
    assert (work.golden.cwd, work.run.cwd, work.check.cwd) == expected


def test_a_list_gets_the_variables_that_it_can_know(tmp_path: Path, settings: Settings) -> None:
    """Variables of the suite and the testcase are set for lists, but for those that name a place."""
    text = """
name = "s"
env = { ROOT = "{suite}/x", THREADS = "{threads}" }
run = ["python3", "run.py"]
[[testcase]]
name = "t"
env = { OF = "{testcase}" }
list = ["{python}", "cases.py"]
"""
    script = (
        "import json, os\n"
        "name = '-'.join(os.environ.get(key, 'none') for key in ('OF', 'THREADS'))\n"
        "print(json.dumps({'name': name, 'where': os.environ['ROOT']}))"
    )
    write(tmp_path, script, "cases.py")
    case = read_suite(write(tmp_path, text), settings).cases[0]
    expected = ("t-none", f"{tmp_path}/x")
    assert (case.name, case.where) == expected


def test_an_output_may_be_compared_in_its_own_way(tmp_path: Path, settings: Settings) -> None:
    """What an output says of tolerances counts more than what its case says."""
    text = """
name = "s"
[[testcase]]
name = "t"
run = ["python3", "run.py"]
dtype = "f32"
eps = 0.5
output = [{ file = "a", golden = "a" }, { file = "b", golden = "b", atol = 2 }]
case = [{ name = "c", shape = [2] }]
"""
    work = work_of(read_suite(write(tmp_path, text), settings).cases[0])
    expected = [Tolerance(rtol=0.5, atol=0.5), Tolerance(rtol=0.0, atol=2.0)]
    assert [output.tolerance for output in work.outputs] == expected


def test_variables_are_set_for_the_steps_that_can_know_them(
    tmp_path: Path, settings: Settings
) -> None:
    """A device is no affair of a golden step, so a variable that names it is set for the run alone."""
    text = """
name = "s"
env = { CARD = "{device}", LIBRARIES = "{build}/lib", SEED = "{seed}" }
build = ["python3", "build.py"]
golden = ["python3", "golden.py"]
run = ["python3", "run.py"]
[[testcase]]
name = "t"
case = [{ name = "c", seed = 3 }]
"""
    work = work_of(read_suite(write(tmp_path, text), settings).cases[0])
    expected = {"CARD": "{device}", "LIBRARIES": "{build}/lib", "SEED": "3"}
    assert work.run.env == expected
    assert work.golden is not None
    assert work.golden.env == {"SEED": "3"}
    assert work.build is not None
    assert work.build.env == {"SEED": "3"}


def test_a_variable_for_some_steps_leaves_the_others_the_wider_one(
    tmp_path: Path, settings: Settings
) -> None:
    """Also one that is passed on; hot runs are runs, hot checks are checks, lists get it where named."""
    text = """
name = "levels"
env = { A = "1", B = { value = "b", steps = ["run"] }, C = { steps = ["golden"] }, N = { value = "2", \
steps = ["list"] } }
golden = ["true"]
[check]
argv = ["true"]
hot = { argv = ["true", "{cases}"], began = "(?P<case>.)", ended = "(?P<case>.)(?P<verdict>.)", \
verdicts = { a = "passed" } }
[[testcase]]
name = "sum"
env = { A = { value = "2", steps = ["check", "run"] } }
list = ["sh", "-c", "echo '{{\\"name\\": \\"'$N$B'\\"}}'"]
[testcase.run]
argv = ["true"]
hot = { argv = ["true", "{cases}"], began = "(?P<case>.)", ended = "(?P<case>.)(?P<verdict>.)", \
verdicts = { a = "passed" } }
"""
    (case,) = read_suite(write(tmp_path, text), settings).cases
    work = work_of(case)
    assert case.name == "2"
    assert work.golden is not None
    assert work.check is not None
    assert work.hot is not None
    assert (work.golden.env, work.golden.inherits) == ({"A": "1"}, ("C",))
    assert work.check_hot is not None
    assert work.check.env == work.check_hot.step.env == {"A": "2"}
    expected = {"A": "2", "B": "b"}
    assert (work.run.env, work.hot.step.env, work.run.inherits) == (expected, expected, ())


def test_memory_is_limited_by_the_suite_or_for_kernels_as_usual(
    tmp_path: Path, settings: Settings
) -> None:
    """Nobody limits the address space of programs unasked: sanitizers reserve more than any machine has."""
    (tmp_path / "k.py").touch()
    text = """
name = "s"
run = ["true"]
[[testcase]]
name = "program"
case = [{ name = "free" }, { name = "held", limits = { memory_bytes = 1000 } }]
[[testcase]]
name = "kernel"
file = "k.py"
kernel = "k"
case = [{ name = "usual", arguments = { n = 1 } }, { name = "held", arguments = { n = 1 }, \
limits = { memory_bytes = 1000 } }]
"""
    cases = read_draft(write(tmp_path, text), settings).cases
    expected = {"program/free": 0, "program/held": 1000}
    expected |= {"kernel/usual": Limits().memory_bytes, "kernel/held": 1000}
    found = {case.id: case.limits.memory_bytes for case in cases if isinstance(case, SuiteCase)}
    assert found == expected
