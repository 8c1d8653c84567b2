"""What is wrong with a suite file is told with file, line and key."""

import os
import select
import signal
import sys
from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings
from tileyard.verbs.test.plan.reading import read_suite

GOOD = """\
name = "s"
dtype = "float32"

[build]
argv = ["python3", "build.py", "{targets}"]
target = "{case}"

[golden]
argv = ["python3", "golden.py", "{seed}"]

[run]
argv = ["{build}/sim", "{work}"]

[run.hot]
argv = ["{build}/sim", "{cases}"]
began = 'BEGIN (?P<case>\\S+)'
ended = 'END (?P<case>\\S+) (?P<verdict>\\w+)'
verdicts = { ok = "passed" }

[output]
file = "out.bin"
golden = "want.bin"

[[testcase]]
name = "a"

[[testcase.case]]
name = "one"
shape = [4, 8]
vars = { op = "sum" }

[[testcase]]
name = "b"
run = ["python3", "run.py"]
case = [{ name = "one", shape = [4] }, { name = "two", shape = [5] }]

[policies.quick]
tags = ["quick"]

[[skip]]
cases = "a/*"
reason = "broken"

[[quarantine]]
cases = "a/*"
owner = "ana"
reason = "flaky"
until = 2026-12-01
"""


def problem_of(folder: Path, text: str, settings: Settings) -> str:
    """What reading a suite says, without the folder's name."""
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_suite(path, settings)
    assert refused.value.exit_status == 2
    return str(refused.value).replace(f"{folder}/", "")


def test_the_good_suite_is_good(tmp_path: Path, settings: Settings) -> None:
    """What the other tests break is whole at first."""
    path = tmp_path / "suite.toml"
    path.write_text(GOOD, encoding="utf-8")
    expected = ["a/one", "b/one", "b/two"]
    assert [case.id for case in read_suite(path, settings).cases] == expected


BAD = {
    "unknown key": (
        'target = "{case}"',
        'targett = "{case}"',
        "suite.toml:6: build.targett: unknown key (did you mean 'target'",
    ),
    "unknown key of a build step": (
        'target = "{case}"',
        'target = "{case}"\ntarget_input = ["a.c"]',
        "suite.toml:7: build.target_input: unknown key (did you mean 'target_inputs'",
    ),
    "inputs of a target that is none": (
        'argv = ["python3", "build.py", "{targets}"]\ntarget = "{case}"',
        'argv = ["python3", "build.py"]\ntarget_inputs = ["a.c"]',
        "suite.toml:6: build.target_inputs: belongs to a `target`, which says what a case needs",
    ),
    "products of no target": (
        'argv = ["python3", "build.py", "{targets}"]\ntarget = "{case}"',
        'argv = ["python3", "build.py"]\nproducts = ["a"]',
        "suite.toml:6: build.products: belongs to a `target`, which says what a case needs",
    ),
    "products beside an output": (
        'argv = ["python3", "build.py", "{targets}"]\ntarget = "{case}"',
        'argv = ["python3", "build.py", "{cache}", "{out}"]\ntarget = "{case}"\nproducts = ["a"]',
        "suite.toml:7: build.products: are taken from {cache}, and nothing from {out}",
    ),
    "products that lead out": (
        'argv = ["python3", "build.py", "{targets}"]\ntarget = "{case}"',
        'argv = ["python3", "build.py", "{cache}"]\ntarget = "{case}"\nproducts = ["/{case}"]',
        "suite.toml:7: build.products[0]: '/one' is not a plain path below {cache}",
    ),
    "inputs of a target that name nothing known": (
        'target = "{case}"',
        'target = "{case}"\ntarget_inputs = ["{testcse}.c"]',
        "suite.toml:7: build.target_inputs[0]: {testcse} is not defined here; did you mean {testcase}?",
    ),
    "unknown key of a golden step": (
        "[golden]",
        '[golden]\nprt = "{case}"',
        "suite.toml:9: golden.prt: unknown key (did you mean 'part'",
    ),
    "part that leads out": (
        "[golden]",
        '[golden]\npart = "../{case}"',
        "suite.toml:9: golden.part: '../one' is not a plain path below {out}",
    ),
    "part that asks for what is known later": (
        "[golden]",
        '[golden]\npart = "{out}/{case}"',
        "suite.toml:9: golden.part: {out} is not defined here",
    ),
    "link that is not a truth value": (
        "[golden]",
        '[golden]\nlink = "no"',
        "suite.toml:9: golden.link: must be true or false, not text",
    ),
    "a program that a step runs, nearly": (
        'argv = ["python3", "build.py", "{targets}"]',
        'argv = ["python3", "build.py", "{targets}"]\nruns = ["true", "mkdirr"]',
        "suite.toml:6: build.runs[1]: there is no program 'mkdirr', neither on PATH nor in",
    ),
    "a version that is not a command": (
        'argv = ["python3", "build.py", "{targets}"]',
        'argv = ["python3", "build.py", "{targets}"]\nversion = ["sim", 3]',
        'suite.toml:6: build.version: is not a command such as ["sim", "--version"], nor a list of commands',
    ),
    "a version of a program that is not there": (
        'argv = ["python3", "build.py", "{targets}"]',
        'argv = ["python3", "build.py", "{targets}"]\nversion = [["true"], ["no-such-sim", "-v"]]',
        "suite.toml:6: build.version[1][0]: there is no program 'no-such-sim'",
    ),
    "a variable to pass on that is none": (
        'argv = ["python3", "build.py", "{targets}"]',
        'argv = ["python3", "build.py", "{targets}"]\nenv = ["A=1", "B C"]',
        "suite.toml:6: build.env[1]: 'B C' is not the name of a variable",
    ),
    "inherit, nearly": (
        'argv = ["python3", "build.py", "{targets}"]',
        'argv = ["python3", "build.py", "{targets}"]\ninherits = true',
        "suite.toml:6: build.inherits: unknown key (did you mean 'inherit'",
    ),
    "a requirement, nearly": (
        'dtype = "float32"',
        'dtype = "float32"\nrequire = { program = ["sim"] }',
        "suite.toml:3: require.program: unknown key (did you mean 'programs'",
    ),
    "a requirement of a version, nearly": (
        'dtype = "float32"',
        'dtype = "float32"\nrequire = { versions = [{ argv = ["sim"], patern = "(.)" }] }',
        "suite.toml:3: require.versions[0].patern: unknown key (did you mean 'pattern'",
    ),
    "a range that is none": (
        'dtype = "float32"',
        'dtype = "float32"\nrequire = { versions = [{ argv = ["sim"], range = "about 3" }] }',
        "suite.toml:3: require.versions[0].range: 'about 3' is not a range of versions",
    ),
    "a version without a group": (
        'dtype = "float32"',
        'dtype = "float32"\nrequire = { versions = [{ argv = ["sim"], pattern = "v" }] }',
        "suite.toml:3: require.versions[0].pattern: 'v' has no group",
    ),
    "a required variable that is none": (
        'dtype = "float32"',
        'dtype = "float32"\nrequire = { variables = ["A=1"] }',
        "suite.toml:3: require.variables[0]: 'A=1' is not the name of a variable",
    ),
    "a required program that is a path": (
        'dtype = "float32"',
        'dtype = "float32"\nrequire = { programs = ["bin/sim"] }',
        "suite.toml:3: require.programs[0]: 'bin/sim' is a path",
    ),
    "a class of devices that is none": (
        'dtype = "float32"',
        'dtype = "float32"\nrequire = { devices = { "npu:0" = 1 } }',
        "suite.toml:3: require.devices.npu:0: 'npu:0' is not a class of devices",
    ),
    "no device of a class": (
        'dtype = "float32"',
        'dtype = "float32"\nrequire = { devices = { npu = 0 } }',
        "suite.toml:3: require.devices",
    ),
    "unknown key, nothing near": (
        'target = "{case}"',
        "zzz = 1",
        "suite.toml:6: build.zzz: unknown key (known are argv, env,",
    ),
    "unknown key of the file": (
        "[policies.quick]",
        "[polices.quick]",
        "suite.toml:37: polices: unknown key (did you mean 'policies'",
    ),
    "unknown key in an inline table": (
        'name = "two", shape',
        'name = "two", shap',
        "suite.toml:35: testcase[1].case[1].shap: unknown key (did you mean 'shape'",
    ),
    "wrong type": (
        "shape = [4, 8]",
        'shape = [4, "8"]',
        "suite.toml:29: testcase[0].case[0].shape[1]: must be a whole number, not text",
    ),
    "wrong type of a variable": (
        'vars = { op = "sum" }',
        "vars = { op = [1] }",
        "suite.toml:30: testcase[0].case[0].vars: must be true or false or a whole number or a "
        "number or text, not a list",
    ),
    "negative limit": (
        "shape = [4, 8]",
        "limits = { run_s = -1 }",
        "suite.toml:29: testcase[0].case[0].limits.run_s: must be a number > 0.0",
    ),
    "missing key": (
        'reason = "broken"',
        "",
        "suite.toml:40: skip[0]: misses the key `reason`",
    ),
    "no table": (
        '[policies.quick]\ntags = ["quick"]',
        "[policies]\nquick = 3",
        "suite.toml:37: policies: must be a table, not a whole number",
    ),
    "no step": (
        'run = ["python3", "run.py"]',
        'run = "python3 run.py"',
        "suite.toml:34: testcase[1].run: is not a table but 'python3 run.py'",
    ),
    "suite with a space": (
        'name = "s"',
        'name = "s s"',
        "suite.toml:1: name: 's s' is not a name",
    ),
    "name with a space": (
        'name = "a"',
        'name = "a b"',
        "suite.toml:25: testcase[0].name: 'a b' is not a name",
    ),
    "name that climbs": (
        '{ name = "two"',
        '{ name = "../two"',
        "suite.toml:35: testcase[1].case[1].name: '../two' is not a name",
    ),
    "duplicate case": (
        'name = "two"',
        'name = "one"',
        "suite.toml:35: case b/one appears twice, also at suite.toml:35",
    ),
    "duplicate testcase": (
        'name = "b"',
        'name = "a"',
        "suite.toml:33: testcase[1].name: 'a' appears twice, also at suite.toml:24",
    ),
    "missing program": (
        '["python3", "run.py"]',
        '["no-such-program", "run.py"]',
        "suite.toml:34: testcase[1].run[0]: there is no program 'no-such-program'",
    ),
    "missing program of a path": (
        '["python3", "golden.py", "{seed}"]',
        '["tools/golden", "{seed}"]',
        "suite.toml:9: golden.argv[0]: there is no program 'tools/golden'",
    ),
    "empty argv": (
        '["python3", "run.py"]',
        "[]",
        "suite.toml:34: testcase[1].run: names no program",
    ),
    "unknown placeholder": (
        '"{seed}"',
        '"{sead}"',
        "suite.toml:9: golden.argv[2]: {sead} is not defined here; did you mean {seed}?",
    ),
    "a place of another step": (
        '"{seed}"',
        '"{device}"',
        "suite.toml:9: golden.argv[2]: {device} is not defined here",
    ),
    "broken template": (
        '"{seed}"',
        '"{seed"',
        "suite.toml:9: golden.argv[2]: '{seed' is not a template",
    ),
    "code with braces": (
        '"{seed}"',
        "'{row[1:] for row in rows}'",
        "suite.toml:9: golden.argv[2]: '{row[1:] for row in rows' does not begin a place such as "
        "{case}; write {{",
    ),
    "several arguments in one": (
        '"{cases}"',
        '"--cases={cases}"',
        "suite.toml:15: run.hot.argv[1]: becomes several arguments, so it must be an argument of its own",
    ),
    "a measure without a number": (
        "[output]\n",
        "[measure]\npattern = 'cycles: \\d+'\nunit = 'cycles'\nbetter = 'lower'\n[output]\n",
        "suite.toml:21: measure.pattern: 'cycles: \\\\d+' has no group (...)",
    ),
    "a measure that says half of it": (
        "[output]\n",
        "[measure]\npattern = '(.)'\n[output]\n",
        "suite.toml:20: measure: needs `pattern`, `unit` and `better`, or a time in `of`",
    ),
    "a time with a unit": (
        "[output]\n",
        "[measure]\nof = 'wall_time'\nunit = 's'\n[output]\n",
        "suite.toml:22: measure.unit: belongs to a number that is printed, and not to wall_time",
    ),
    "a hot run that knows of one case": (
        '"{cases}"',
        '"{case}", "{cases}"',
        "suite.toml:15: run.hot.argv[1]: {case} is not defined here; did you mean {cases}?",
    ),
    "a hot run that is told of no case": (
        '"{cases}"',
        '"all"',
        "suite.toml:15: run.hot.argv: does not contain {cases}",
    ),
    "no target": (
        'target = "{case}"',
        "",
        "suite.toml:4: build: asks for {targets}, and no `target` says what a case needs",
    ),
    "what no build makes": (
        'run = ["python3", "run.py"]',
        'build = false\nrun = ["{build}/sim"]\ncheck = ["true"]',
        "suite.toml:35: testcase[1].run: asks for {build}, and there is no build step",
    ),
    "what no golden step makes": (
        'run = ["python3", "run.py"]',
        'golden = false\nrun = ["true"]\ncheck = ["cmp", "{golden}/x", "{work}/x"]',
        "suite.toml:36: testcase[1].check: asks for {golden}, and there is no golden step",
    ),
    "bad regex": (
        "'BEGIN (?P<case>\\S+)'",
        "'BEGIN (?P<case>\\S+'",
        "suite.toml:16: run.hot.began: 'BEGIN (?P<case>\\\\S+' is not a regular expression",
    ),
    "regex without its group": (
        "(?P<verdict>\\w+)",
        "(\\w+)",
        "suite.toml:17: run.hot.ended: 'END (?P<case>\\\\S+) (\\\\w+)' has no group (?P<verdict>...)",
    ),
    "unknown outcome": (
        'ok = "passed"',
        'ok = "fine"',
        "suite.toml:18: run.hot.verdicts: invalid value 'fine' (known are passed, unchecked, mismatch,",
    ),
    "bad date": (
        "until = 2026-12-01",
        'until = "next week"',
        "suite.toml:48: quarantine[0].until: must be a date such as 2026-12-31",
    ),
    "eps beside rtol": (
        "shape = [4, 8]",
        "shape = [4, 8]\neps = 1\nrtol = 1",
        "suite.toml:30: testcase[0].case[0].eps: sets both rtol and atol",
    ),
    "a variable with a name that is taken": (
        'vars = { op = "sum" }',
        'vars = { work = "sum" }',
        "suite.toml:30: testcase[0].case[0].vars.work: has another meaning already",
    ),
    "no shape to compare": (
        "shape = [4, 8]",
        "",
        "suite.toml:20: output.shape: no shape is known for suite.toml:27",
    ),
    "a valid shape that is not part": (
        "shape = [4, 8]",
        "shape = [4, 8]\nvalid_shape = [5, 8]",
        "suite.toml:30: testcase[0].case[0].valid_shape: 5x8 is not part of 4x8",
    ),
    "a type that cannot be compared": (
        'dtype = "float32"',
        'dtype = "float3"',
        "suite.toml:20: output.dtype: 'float3' is not a type that can be compared",
    ),
    "a step of programs beside a file of kernels": (
        'run = ["python3", "run.py"]',
        'run = ["python3", "run.py"]\nfile = "suite.toml"',
        "suite.toml:34: testcase[1].run: belongs to programs",
    ),
    "a kernel without its file": (
        'run = ["python3", "run.py"]',
        'kernel = "k"',
        "suite.toml:34: testcase[1].kernel: belongs to a testcase of kernels, which needs `file`",
    ),
    "no device at all": (
        'vars = { op = "sum" }',
        "devices = 0",
        "suite.toml:30: testcase[0].case[0].devices: must be a whole number >= 1",
    ),
    "several devices for a kernel": (
        'run = ["python3", "run.py"]',
        'file = "suite.toml"\ndevices = 2',
        "suite.toml:35: testcase[1].devices: is 2, and a kernel runs on one device",
    ),
    "a variable for some steps in one of them": (
        'target = "{case}"',
        'target = "{case}"\nenv = { A = { value = "1", steps = ["run"] } }',
        "suite.toml:7: build.env.A.steps: belongs to a variable of a suite or testcase",
    ),
    "a variable of the environment": (
        'target = "{case}"',
        'target = "{case}"\nenv = { "A-B" = "1" }',
        "suite.toml:7: build.env.A-B: 'A-B' is not the name of a variable",
    ),
    "no TOML": (
        "[policies.quick]",
        "[policies.quick",
        "suite.toml: is not valid TOML",
    ),
    "glob of a policy that is like no case": (
        'tags = ["quick"]',
        'exclude = ["a/*", "b/on", "b/two"]',
        "suite.toml:38: policies.quick.exclude[1]: 'b/on' matches none of the 3 cases (did you mean b/one",
    ),
    "skip of a policy that is like no case": (
        'tags = ["quick"]',
        'skip = [{ cases = "aa/*", reason = "r" }]',
        "suite.toml:38: policies.quick.skip[0].cases: 'aa/*' matches none of the 3 cases (did you mean a",
    ),
    "skip of a policy with an unknown key": (
        'tags = ["quick"]',
        'skip = [{ cases = "a/*", reason = "r", owners = "ana" }]',
        "suite.toml:38: policies.quick.skip[0].owners: unknown key (known are cases, reason",
    ),
    "select of a policy": (
        'tags = ["quick"]',
        'select = "declard"',
        "suite.toml:38: policies.quick.select: invalid value 'declard' (did you mean 'declared'",
    ),
    "key of a policy": (
        'tags = ["quick"]',
        'excludes = ["a/*"]',
        "suite.toml:38: policies.quick.excludes: unknown key (did you mean 'exclude'",
    ),
    "smoke is neither": (
        'name = "two", shape',
        'smoke = "onyl", name = "two", shape',
        "suite.toml:35: testcase[1].case[1].smoke: invalid value 'onyl' (did you mean 'only'",
    ),
    "include of nothing": (
        'name = "s"',
        'name = "s"\ninclude = ["other.toml"]',
        "suite.toml:2: include[0]: there is no file other.toml",
    ),
    "include of nothing like it": (
        'name = "s"',
        'name = "s"\ninclude = ["*/other.toml"]',
        "suite.toml:2: include[0]: */other.toml matches no file",
    ),
    "include of itself": (
        'name = "s"',
        'name = "s"\ninclude = ["suite.toml"]',
        "suite.toml:2: include[0]: includes itself: suite.toml -> suite.toml",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_suite_is_refused(tmp_path: Path, settings: Settings, what: str) -> None:
    """Each mistake is told in words, with the line on which it stands and the key."""
    found, instead, expected = BAD[what]
    assert found in GOOD
    problem = problem_of(tmp_path, GOOD.replace(found, instead, 1), settings)
    assert expected in problem


def test_a_circle_of_files_is_refused(tmp_path: Path, settings: Settings) -> None:
    """The way back to the file is told in full."""
    (tmp_path / "one.toml").write_text('name = "o"\ninclude = ["two.toml"]\n', encoding="utf-8")
    (tmp_path / "two.toml").write_text('name = "t"\ninclude = ["one.toml"]\n', encoding="utf-8")
    problem = problem_of(tmp_path, 'name = "s"\ninclude = ["one.toml"]\n', settings)
    expected = "two.toml:2: include[0]: includes itself: one.toml -> two.toml -> one.toml"
    assert problem == expected


def test_an_allow_list_speaks_for_the_whole_suite(tmp_path: Path, settings: Settings) -> None:
    """An included file cannot take away cases of others."""
    one = GOOD + '[[allow]]\ncases = "a/*"\nreason = "r"\n'
    (tmp_path / "one.toml").write_text(one, encoding="utf-8")
    problem = problem_of(tmp_path, 'name = "s"\ninclude = ["one.toml"]\n', settings)
    assert problem.startswith("one.toml:49: allow: an included file has no say")


LIST = 'name = "s"\nrun = ["python3", "run.py"]\nlist = {}\n'


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "import sys; sys.stderr.write('no cases today'); sys.exit(3)",
            "suite.toml:3: list: no cases today: ended with exit code 3: {python} cases.py in {folder}",
        ),
        (
            "raise ValueError('bad\\nshape')",
            "suite.toml:3: list: ValueError: bad shape: ended with exit code 1: {python} cases.py in",
        ),
        (
            "import os; os.kill(os.getpid(), 11)",
            "suite.toml:3: list: was killed by SIGSEGV (Segmentation fault): {python} cases.py in {folder}; "
            "it wrote nothing to stderr",
        ),
        ("", "suite.toml:3: list: printed no case: {python} cases.py in {folder}"),
        (
            'print(\'{"name": "a"}\\nhello\')',
            "suite.toml:3: list: line 2 of what it printed: is not JSON",
        ),
        (
            'print(\'{"name": "a", "eps_": 1}\')',
            "suite.toml:3: list.eps_: line 1 of what it printed: unknown key (did you mean 'eps'",
        ),
        (
            'print(\'{"name": "a"}\\n{"name": "a"}\')',
            "suite.toml:3: case s/a appears twice, also at suite.toml:3",
        ),
        ("print('[]')", "suite.toml:3: list: line 1 of what it printed: is not a table but a list"),
    ],
)
def test_a_list_that_fails_says_how(
    tmp_path: Path, settings: Settings, script: str, expected: str
) -> None:
    """Code or signal, arguments, working directory and last words, or the line that is not a case."""
    (tmp_path / "cases.py").write_text(script, encoding="utf-8")
    text = LIST.format(f'["{sys.executable}", "cases.py"]')
    problem = problem_of(tmp_path, text, settings)
    wanted = (
        expected.format(python=sys.executable, folder=tmp_path)
        if "{python}" in expected
        else (expected)
    )
    assert problem.startswith(wanted)


@pytest.mark.slow
def test_a_list_that_hangs_is_ended(tmp_path: Path, settings: Settings) -> None:
    """Past its limit a list's program is ended, also what it left running in its session."""
    script = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "open('child', 'w').write(str(child.pid))\n"
        "child.wait()"
    )
    (tmp_path / "cases.py").write_text(script, encoding="utf-8")
    text = LIST.format(f'{{ argv = ["{sys.executable}", "cases.py"], limit_s = 1 }}')
    problem = problem_of(tmp_path, text, settings)
    ended = "ran past its limit of 1 s and was killed with all it had started"
    called = f"{sys.executable} cases.py in {tmp_path}; it wrote nothing to stderr"
    assert problem == f"suite.toml:3: list: {ended}: {called}"
    assert is_gone(int((tmp_path / "child").read_text()))


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or does soon; one that does not is ended here."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([watched], [], [], 10)
        if not readable:
            signal.pidfd_send_signal(watched, signal.SIGKILL)
        return bool(readable)
    finally:
        os.close(watched)


def test_a_testcase_that_a_list_does_not_mention_is_refused(
    tmp_path: Path, settings: Settings
) -> None:
    """Where cases are listed, a testcase without any was misspelt on one side."""
    (tmp_path / "cases.py").write_text('print(\'{"name": "a"}\')', encoding="utf-8")
    text = LIST.format(f'["{sys.executable}", "cases.py"]') + '[[testcase]]\nname = "t"\n'
    problem = problem_of(tmp_path, text, settings)
    expected = "suite.toml:4: testcase[0]: no case of 't' was listed"
    assert problem == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('name = "s"\n', "suite.toml:1: has no testcase"),
        ('name = "s"\n[[testcase]]\nname = "t"\n', "suite.toml:2: testcase[0].run: is missing"),
        (
            'name = "s"\n[[testcase]]\nname = "t"\nfile = "no.py"\n',
            "suite.toml:4: testcase[0].file: there is no file no.py",
        ),
        ("", "suite.toml:1: misses the key `name`"),
    ],
)
def test_a_suite_that_says_too_little_is_refused(
    tmp_path: Path, settings: Settings, text: str, expected: str
) -> None:
    """What is missing is told where it should stand."""
    assert problem_of(tmp_path, text, settings).startswith(expected)


def test_what_is_no_suite_is_refused(tmp_path: Path, settings: Settings) -> None:
    """A folder without suites, and a file that does not exist, are told by their paths."""
    with pytest.raises(UsageError, match=r"holds no suite\.toml, nor does any folder in it"):
        read_suite(tmp_path, settings)
    with pytest.raises(UsageError, match=r"there is no file .*/none\.toml"):
        read_suite(tmp_path / "none.toml", settings)
