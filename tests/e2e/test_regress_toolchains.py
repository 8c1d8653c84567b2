"""``tileyard regress`` with toolchains as sides: one suite's programs, with steps run by each of them."""

import json
import shutil
from typing import Any

import pytest
from tests.conftest import CommandLine
from tests.e2e.repositories import git

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="its programs are compiled"),
]

SUITE = """
name = "sums"
[build]
argv = ["{toolchain}/bin/compile", "-o", "{out}/{testcase}", "{testcase}.c"]
inputs = ["*.c"]
[golden]
argv = ["{toolchain}/bin/answer", "{out}/right"]
[run]
argv = ["sh", "{toolchain}/share/launch", "{build}/{testcase}"]
[check]
argv = ["sh", "{toolchain}/share/check", "result", "right"]
[measure]
pattern = 'steps: (\\d+)'
unit = "steps"
better = "lower"
[[testcase]]
name = "slow"
[[testcase]]
name = "even"
[[testcase]]
name = "wrong"
"""
SOURCE = """
#include <stdio.h>
int main(void) {
  int steps = 0;
  for (int i = 0; i < %s; ++i) ++steps;
  printf("steps: %%d\\n", steps);
  fputs("%s", fopen("result", "wx"));
}
"""
LIBRARY = '#!/bin/sh\nexec cc -O1 -DTIMES=%d -DANSWER=\'"%s"\' "$@"\n'
TOOLS = {
    "bin/answer": "#!/bin/sh\nprintf 7 > $1\n",
    "share/launch": "command -v compile > /dev/null && exec $1\n",  # its programs are on PATH, too
    "share/check": "cmp -s $1 $2 || exit 2\n",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A folder with a suite, in no repository, and two toolchains: one program gets slower, one wrong."""
    folder = tmp_path_factory.mktemp("toolchains")
    names = {name: str(folder / name.lower()) for name in ("HOME", "LOCK_DIR")}
    cli = CommandLine(folder / "place", {f"TILEYARD_{name}": path for name, path in names.items()})
    cli.cwd.mkdir()
    (cli.cwd / "suite.toml").write_text(SUITE)
    for name, times, result in (("slow", "TIMES", "7"), ("even", "100", "7")):
        (cli.cwd / f"{name}.c").write_text(SOURCE % (times, result))
    (cli.cwd / "wrong.c").write_text((SOURCE % ("100", "7")).replace('"7"', "ANSWER"))
    for name, times, answer, commit in (("old", 100, "7", "0" * 40), ("new", 110, "8", "1" * 40)):
        for file, text in (TOOLS | {"bin/compile": LIBRARY % (times, answer)}).items():
            path = folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        whole = ("--tree", str(folder / name), "--commit", commit, "-o", f"{name}.tyb")
        done = cli.run("bundle", *whole)
        assert done.returncode == 0, done.stderr
    return cli


def sum_up(row: dict[str, Any]) -> tuple[object, ...]:
    """What a row says: its verdict and its numbers."""
    return tuple(row[name] for name in ("verdict", "base", "head", "unit"))


def test_the_program_that_a_toolchain_made_slower_is_named(place: CommandLine) -> None:
    """Each side's steps get its own toolchain, all four of them, also on another host; the sides are named by
    bundle and commit.
    """
    command = ("regress", "old.tyb", "new.tyb", "suite.toml", "--json")
    done = place.run(*command)
    assert done.returncode == 1, done.stderr
    there = place.run(*command, "--select", "slow", "--hosts", "local:1")
    assert there.returncode == 1, there.stderr
    hosted = json.loads(there.stdout)
    assert hosted["device"] == "slot:0@local-1"
    assert [sum_up(row) for row in hosted["rows"]] == [
        sum_up(row) for row in json.loads(done.stdout)["rows"] if row["case"] == "slow/default"
    ]
    document = json.loads(done.stdout)
    rows = {row["case"]: row for row in document["rows"]}
    assert {case: row["verdict"] for case, row in rows.items()} == {
        "slow/default": "regressed",
        "even/default": "equivalent",
        "wrong/default": "failed",
    }
    slow = rows["slow/default"]
    assert (slow["base"], slow["head"], slow["unit"]) == (100, 110, "steps")
    assert rows["wrong/default"]["head_message"].startswith("mismatch: check step")
    assert document["base"] == "old.tyb (0000000000)"
    assert document["head"] == "new.tyb (1111111111)"


def test_the_same_toolchain_changes_nothing(place: CommandLine) -> None:
    """Nothing is run, under whatever name its bundle is."""
    shutil.copy(place.cwd / "old.tyb", place.cwd / "again.tyb")
    document = place.run_json("regress", "old.tyb", "again.tyb", "suite.toml")
    assert {row["verdict"] for row in document["rows"]} == {"unchanged"}


def test_bad_input_is_one_line(place: CommandLine, cli: CommandLine) -> None:
    """With exit status 2."""
    shutil.copytree(place.cwd, cli.cwd, dirs_exist_ok=True)
    (cli.cwd / "kernels.py").write_text("")
    (cli.cwd / "junk.tyb").write_text("junk")
    (cli.cwd / "other.tyb").write_bytes((cli.cwd / "old.tyb").read_bytes()[:-100])
    for words, expected in {
        ("old.tyb", "new.tyb", "kernels.py"): "old.tyb is a toolchain, and steps of a suite use",
        ("old.tyb", "new.tyb"): "old.tyb is a toolchain, and steps of a suite use one",
        (".", "new.tyb", "--exec", "a.py"): "new.tyb is a toolchain, and steps of a suite use",
        (".", "new.tyb", "--static", "a.py"): "new.tyb is a toolchain, and steps of a suite use",
        ("old.tyb", "new.tyb", "none.toml"): "neither side has a suite none.toml",
        ("old.tyb", "none.tyb", "suite.toml"): "none.tyb",
        ("old.tyb", "junk.tyb", "suite.toml"): "junk.tyb",
        ("old.tyb", "v1", "suite.toml"): "suite.toml is in no git repository",
        ("old.tyb", "other.tyb", "suite.toml"): "other.tyb",
    }.items():
        refuse(cli, words, expected)
    git(cli.cwd, "init", "-q")
    git(cli.cwd, "commit", "-q", "--allow-empty", "-m", "empty")
    refuse(cli, ("old.tyb", "new.tyb", "suite.toml", "--clean"), "--clean: working tree")


def refuse(cli: CommandLine, words: tuple[str, ...], expected: str) -> None:
    """What is refused says why, in one line."""
    done = cli.run_here("regress", *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (words, done.stderr)
    assert expected in done.stderr
