"""A suite that was built in one place runs in another, without its source and without a compiler."""

import json
import shutil
from pathlib import Path

import pytest
from tests.conftest import ROOT, CommandLine
from tests.e2e.own_process import refuse_run

pytestmark = pytest.mark.slow

SUITE = f"""
name = "mixed"

[[testcase]]
name = "softmax"
file = "{ROOT / "examples" / "softmax.py"}"
[[testcase.case]]
name = "small"
arguments = {{ M = 16, N = 64 }}

[[testcase]]
name = "copy"
build = {{ argv = ["sh", "-c", "cc -o {{out}}/copy copy.c"], inputs = ["copy.c"] }}
golden = {{ argv = ["{{python}}", "golden.py", "{{out}}"] }}
run = {{ argv = ["{{build}}/copy", "{{source}}.bin", "output.bin"] }}
output = {{ file = "output.bin", golden = "golden.bin", dtype = "uint8", shape = [4] }}
check = {{ argv = ["{{python}}", "{{suite}}/check.py"], inputs = ["check.py"] }}
[[testcase.case]]
name = "right"
vars = {{ source = "input" }}
[[testcase.case]]
name = "wrong"
vars = {{ source = "other" }}

[[testcase]]
name = "broken"
build = {{ argv = ["sh", "-c", "cc -o {{out}}/broken broken.c"], inputs = ["broken.c"] }}
run = {{ argv = ["{{build}}/broken"] }}
"""
COPY = r"""
#include <stdio.h>
int main(int count, char **names) {
    char data[4];
    FILE *in = fopen(names[1], "rb"), *out = fopen(names[2], "wb");
    if (fread(data, 1, 4, in) != 4) return 1;
    return fwrite(data, 1, 4, out) == 4 ? 0 : 1;
}
"""
GOLDEN = """
import pathlib, sys
out = pathlib.Path(sys.argv[1])
for name, data in {"input": b"abcd", "golden": b"abcd", "other": b"abcx"}.items():
    (out / f"{name}.bin").write_bytes(data)
"""
CHECK = "import pathlib; assert pathlib.Path('output.bin').stat().st_size == 4\n"


@pytest.fixture
def there(tmp_path: Path) -> CommandLine:
    """Another place: its own home and directory, and nothing on PATH."""
    folder = tmp_path / "there"
    (folder / "bin").mkdir(parents=True)
    return CommandLine(folder, {"PATH": str(folder / "bin"), "CC": "/nowhere/cc"})


@pytest.fixture
def here(knowing: CommandLine) -> CommandLine:
    """Where the suite is built."""
    folder = knowing.cwd
    (folder / "suite.toml").write_text(SUITE)
    (folder / "copy.c").write_text(COPY)
    (folder / "broken.c").write_text("int main(void) { return oops; }")
    (folder / "golden.py").write_text(GOLDEN)
    (folder / "check.py").write_text(CHECK)
    return knowing


def test_a_packed_suite_runs_elsewhere(here: CommandLine, there: CommandLine) -> None:
    """Programs and kernels, golden results and checks: the same verdicts, with nothing built. What cannot be
    built is not packed, and the exit status says so. Another commit is refused before anything is unpacked;
    the line says what was asked for and what was found.
    """
    packed = here.run("bundle", "suite.toml", "-o", "x.tyb", "--commit", "c0ffee")
    assert packed.returncode == 1, packed.stderr
    assert "oops" in packed.stderr
    shutil.move(here.cwd / "x.tyb", there.cwd / "x.tyb")
    shutil.rmtree(here.cwd)
    other = refuse_run(there, "test", "--from", "x.tyb", "--commit", "decaf0")
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)
    assert "decaf0" in other.stderr
    assert "c0ffee" in other.stderr
    assert not list(there.home.glob("objects/trees/*"))
    done = there.run("test", "--from", "x.tyb", "--commit", "c0ffee", "--json")
    found = {v["case"]: v["outcome"] for v in json.loads(done.stdout)["verdicts"]}
    expected = {"softmax/small": "passed", "copy/right": "passed", "copy/wrong": "mismatch"}
    assert found == expected
    assert done.returncode == 1
    again = there.run("test", "--from", "x.tyb", "--select", "copy/right", "--changed", "any")
    assert (again.returncode, "1  skipped" in again.stdout) == (0, True), again.stdout


def test_a_suite_of_which_nothing_is_built_has_no_bundle(cli: CommandLine) -> None:
    """The reason comes first; in quarantine or not, nothing that can be used was built."""
    (cli.cwd / "suite.toml").write_text(
        'name = "bad"\nrun = ["true"]\n[[testcase]]\nname = "a"\n'
        'build = ["sh", "-c", "echo no compiler here >&2; exit 3"]\n'
        '[[quarantine]]\ncases = "*"\nowner = "me"\nreason = "no compiler"\nuntil = 2999-01-01\n'
    )
    done = cli.run("bundle", "suite.toml", "-o", "x.tyb")
    *_, reason, last = done.stderr.splitlines()
    assert "sh ended with exit code 3: no compiler here" in reason
    assert last == f"0 of 1 case could be built, so {cli.cwd}/x.tyb was not written"
    assert (done.returncode, done.stdout, (cli.cwd / "x.tyb").exists()) == (1, "", False)


REQUIRING = """
name = "demo"
run = ["true"]
[require]
programs = ["no-such-simulator"]
versions = [{ argv = ["sh", "-c", "echo release 2.1"], range = ">=3" }]
variables = ["NO_SUCH_HOME"]
devices = { npu = 2 }
[[testcase]]
name = "one"
"""


def test_what_a_suite_requires_is_asked_for_first(cli: CommandLine) -> None:
    """All that is missing is named, of a suite, its bundle and a toolchain, and nothing is left behind."""
    expected = (
        "program no-such-simulator is required and was not found on PATH; "
        "`sh -c echo release 2.1`: >=3 is needed, found 2.1; "
        "variable NO_SUCH_HOME: it is needed, found none; devices npu: 2 is needed, found none"
    )
    (cli.cwd / "suite.toml").write_text(REQUIRING)
    required = REQUIRING.partition("[require]\n")[2].partition("[[")[0]
    (cli.cwd / "needs.toml").write_text(required)
    (cli.cwd / "inst").mkdir()
    (cli.cwd / "inst" / "tool").write_text("text")
    tree = ("--tree", "inst", "--commit", "c0ffee", "-o", "t.tyb", "--require", "needs.toml")
    assert cli.run_here("bundle", *tree).returncode == 0
    assert cli.run("bundle", "suite.toml", "-o", "s.tyb").returncode == 0
    (cli.cwd / "plain.toml").write_text(
        'name = "plain"\nrun = ["true"]\n[[testcase]]\nname = "a"\n'
    )
    shutil.rmtree(cli.home)
    for arguments in (
        ("test", "suite.toml"),
        ("test", "--from", "s.tyb"),
        ("test", "plain.toml", "--toolchain", "t.tyb"),
        ("bundle", "--inspect", "s.tyb"),
        ("bundle", "--inspect", "t.tyb"),
    ):
        done = refuse_run(cli, *arguments)
        assert (done.returncode, expected in done.stderr) == (2, True), done.stderr
        assert not list(cli.home.glob("runs/*"))
        assert not list(cli.home.glob("objects/trees/*"))
    assert "needs program no-such-simulator on PATH" in done.stdout
    (cli.cwd / "needs.toml").write_text('programm = ["x"]\n')
    wrong = cli.run_here("bundle", *tree)
    said = "needs.toml:1: programm: unknown key (did you mean 'programs'"
    assert (wrong.returncode, said in wrong.stderr) == (2, True), wrong.stderr


def test_a_toolchain_is_used_by_steps(here: CommandLine, there: CommandLine) -> None:
    """What the build job made is found by place and by PATH; another commit is another key."""
    tree = here.cwd / "install"
    (tree / "bin").mkdir(parents=True)
    for version in ("one", "two"):
        (tree / "bin" / "tool").write_text(f"#!/bin/sh\necho {version}\n")
        (tree / "bin" / "tool").chmod(0o755)
        made = here.run_here(
            "bundle", "--tree", str(tree), "--commit", version * 4, "-o", f"{version}.tyb"
        )
        assert made.returncode == 0, made.stderr
    (here.cwd / "suite.toml").write_text(
        'name = "tools"\n[run]\nruns = ["{toolchain}/bin/tool"]\n'
        'argv = ["sh", "-c", "{toolchain}/bin/tool && tool"]\n'
        '[[testcase]]\nname = "t"\n[[testcase.case]]\nname = "c"\n'
    )
    runs = [
        here.run("test", "suite.toml", "--toolchain", f"{version}.tyb", "--changed", "any")
        for version in ("one", "one", "two")
    ]
    logs = sorted(
        [line for line in log.read_text().splitlines() if not line.startswith("====")]
        for log in (here.home / "logs").glob("*/t/c.log")
    )
    assert [done.returncode for done in runs] == [0, 0, 0], runs[0].stdout + runs[0].stderr
    assert logs == [["one", "one"], ["two", "two"]]
    wrong = refuse_run(
        here, "test", "suite.toml", "--toolchain", "one.tyb", "--commit", "twotwotwotwo"
    )
    assert wrong.returncode == 2
