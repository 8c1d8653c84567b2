"""``tileyard regress`` of programs over several hosts: both sides at one agent, with this host's verdicts."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine
from tests.e2e.repositories import make_history
from tests.e2e.test_hosted_suites import DECLARED, REACHED

pytestmark = pytest.mark.slow

SUITE = """
name = "s"
golden = ["sh", "-c", "printf 7 > {out}/right"]
check = ["sh", "-c", "cmp -s result right || exit 2"]
measure = { pattern = "^n: (.*)", unit = "n", better = "lower" }
[build]
argv = ["sh", "-c", "cp {testcase}.sh {out}/program"]
inputs = ["*.sh"]
[run]
argv = ["sh", "{build}/program", "{suite}/data"]
inputs = ["data"]

[[testcase]]
name = "built"
[[testcase]]
name = "wrong"
[[testcase]]
name = "reads"
[[testcase]]
name = "imports"
run = ["sh", "-c", "printf 7 > result; cat $(echo $PYTHONPATH | cut -d: -f1)/number.py"]
"""
PROGRAM = 'printf %s > result; echo "n: %s"\n'


def side(number: int, result: int) -> dict[str, str]:
    """What a revision has: programs that print numbers, a file that one reads, and a module."""
    return {
        "suite/suite.toml": SUITE,
        "suite/built.sh": PROGRAM % (7, number),
        "suite/wrong.sh": PROGRAM % (result, number),
        "suite/reads.sh": PROGRAM % (7, "$(cat $1)"),
        "suite/imports.sh": "",
        "suite/data": str(number),
        "modules/number.py": f"n: {number}",
    }


def sum_up(document: dict[str, Any]) -> dict[str, tuple[object, ...]]:
    """Of each testcase: its verdict, its numbers, and why it failed."""
    names = ("verdict", "base", "head", "base_message", "head_message")
    return {
        row["case"].partition("/")[0]: tuple(row[name] for name in names)
        for row in document["rows"]
    }


def test_programs_of_two_revisions_end_there_as_here(cli: CommandLine, tmp_path: Path) -> None:
    """With what each side has built, the files that its steps name, and the modules of its checkout; those of
    the working tree, which are here only, are a note.
    """
    project = make_history(cli, tmp_path, [side(100, 7), side(110, 8)])
    cli.env["PYTHONPATH"] = str(project / "modules")
    command = ("regress", "c0", ".", "suite", "--json")
    found = []
    for hosts in ((), ("--hosts", "local:2")):
        cli.env["TILEYARD_HOME"] = str(tmp_path / f"home{len(hosts)}")
        done = cli.run(*command, *hosts)
        assert done.returncode == 1, done.stderr
        found.append(json.loads(done.stdout))
    here, there = map(sum_up, found)
    assert here == there
    assert {name: row[0] for name, row in here.items()} == {
        "built": "regressed",
        "wrong": "failed",
        "reads": "regressed",
        "imports": "regressed",
    }
    assert found[1]["device"] == "slot:0@local-1, slot:0@local-2"
    assert found[0]["notes"] == []
    (note,) = found[1]["notes"]
    assert note.startswith(f"head: modules in {project}/modules do not go to other hosts")


PAIR = """
name = "s"
measure = { pattern = "^n: (.*)", unit = "n", better = "lower" }
build = { argv = ["cp", "number", "{out}"], inputs = ["number"] }
run = ["sh", "-c", "cat {build}/number; test {device_physical} = 0,5"]
[[testcase]]
name = "pair"
devices = 2
"""


def test_programs_that_hold_two_cards_are_compared_on_another_host(
    cli: CommandLine, tmp_path: Path
) -> None:
    """Both sides get both of them."""
    sides = [{"suite.toml": PAIR, "number": f"n: {number}\n"} for number in (100, 110)]
    make_history(cli, tmp_path, sides)
    far = cli.cwd / "far"
    far.mkdir()
    (far / "devices.toml").write_text("".join(DECLARED.format(number=n) for n in range(8)))
    (cli.cwd / "hosts.toml").write_text(REACHED.format(host=1))
    words = ("--hosts", "hosts.toml", "--devices", "npu", "--json")
    done = cli.run("regress", "c0", ".", ".", *words)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert sum_up(document) == {"pair": ("regressed", 100.0, 110.0, "", "")}
    assert document["device"] == "npu:0@card1, npu:5@card1"


def test_a_python_of_a_side_that_differs_there_is_one_line(
    cli: CommandLine, tmp_path: Path
) -> None:
    """Before anything is run: a Python of its own runs the scripts of each side."""
    make_history(cli, tmp_path, [{"a.py": ""}])
    python = tmp_path / "python1"
    python.write_text("#!/bin/sh\necho Python $PPID\n")
    python.chmod(0o755)
    words = ("regress", ".", str(python), "--exec", "a.py", "--hosts", "local:1")
    refused = cli.run(*words)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert f"in place of {python}, which is Python " in refused.stderr
