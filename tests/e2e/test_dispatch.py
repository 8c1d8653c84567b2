"""Tuned kernels as functions: shapes tuned in one run, the config that won for each, a default for others."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DECIDED, CommandLine
from tests.e2e.warm_script import run_script

pytestmark = pytest.mark.slow

KERNEL = """
import tilelang.language as T
import tileyard


@tileyard.kernel(space={"block": [32, 64]}, shapes={"usual": {"M": 4, "N": 128}}, reference=lambda A: A * 2)
def double(M, N, block=32):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(M, T.ceildiv(N, block), threads=32) as (bx, by):
            for i in T.Parallel(block):
                B[bx, by * block + i] = A[bx, by * block + i] * 2

    return main
"""

SHAPES = """
[[shape]]
M = [2, 3]
N = 128
weight = 3

[[shape]]
M = 4
N = 256
"""

SCRIPT = """
import json
import logging
import os
import sys

import numpy as np
import tileyard
from double import double


def say(text):
    print(text, flush=True)


# What was tuned from the command line, and once more for some of these shapes.
tuned = tileyard.tuned(double)
for shape in ((2, 128), (3, 128), (4, 256)):
    array = np.ones(shape, np.float32)
    assert (tuned(array) == 2).all()
    say(json.dumps(tuned.choose(array)))
assert tuned.built == 0

table = tileyard.tune(double, shapes={"small": {"M": [3, 2], "N": 128}}, within=0.5)
assert [arguments["M"] for arguments, _ in table.table] == [3, 2] and table.curve[-1].share == 1
assert (table.dispatch()(np.ones((2, 128), np.float32)) == 2).all()
table.export("table.json")
say(len(json.load(open("table.json"))["choices"]))

for text in ("[[shape]]\\nM = 4\\n[[shape]]\\nMM = 4", "[[shape]]\\nM = 4\\n[[shape]]\\nM = [3, 4]"):
    with open("refused.toml", "w") as file:
        file.write(text)
    try:
        tileyard.tune(double, shapes="refused.toml")
    except tileyard.TileyardError as error:
        say(error)

# A study of one shape, in a home of its own, which dispatches others, too.
study = tileyard.tune(double, arg={"M": 4}, home="own")
kernel = study.dispatch(default={"block": 64}, arguments=lambda A: {"M": A.shape[0], "N": A.shape[1]})
assert (kernel(np.ones((3, 64), np.float32)) == 2).all() and kernel.built == 1
study.export("winner.json")

known, new = np.ones((4, 128), np.float32), np.ones((4, 512), np.float32)
tuned = tileyard.tuned(double, default={"block": 16}, nearest=False, home="own")
assert tuned.choose(known)[1]["block"] in (32, 64) and (tuned(known) == 2).all() and tuned.built == 0

# Many processes at once ask for a kernel that nobody has built.
count = 8
read, write = os.pipe()
for _ in range(count):
    if os.fork() == 0:
        assert (tuned(new) == 2).all()
        os.write(write, bytes([tuned.built]))
        os._exit(0)
ended = [os.wait()[1] for _ in range(count)]
built = os.read(read, 1000)
assert set(ended) == {0} and len(built) == len(ended), ended
say(f"built {sum(built)} in {len(built)}")

# A config for the nearest shape is reported once.
logging.basicConfig(stream=sys.stdout, format="%(message)s")
guess = tileyard.tuned(double, home="own")
assert (guess(new) == 2).all() and (guess(new) == 2).all()

try:
    tileyard.tuned(double, nearest=False, home="own")(new)
except tileyard.TileyardError as error:
    say(error)
"""


@dataclass(frozen=True)
class Tabled:
    """A folder where a kernel was tuned for many shapes, and used; what both printed."""

    cli: CommandLine
    result: dict[str, Any]
    said: list[str]

    @property
    def rows(self) -> list[list[Any]]:
        """The arguments and the config of each row of the table."""
        return [[row["arguments"], row["trial"]["config"]] for row in self.result["rows"]]


WITHIN = ("--within", "50%")


@pytest.fixture(scope="module")
def tabled(tmp_path_factory: pytest.TempPathFactory) -> Tabled:
    """The run from the command line, then the script, in a copy of a process that has imported TileLang."""
    folder = tmp_path_factory.mktemp("tabled")
    cli = CommandLine(folder, {**DECIDED})
    (folder / "double.py").write_text(KERNEL)
    (folder / "shapes.toml").write_text(SHAPES)
    result = cli.run_json("tune", "double.py", "--shapes", "shapes.toml", *WITHIN)
    (folder / "script.py").write_text(SCRIPT)
    done = run_script(cli, folder / "script.py")
    assert done.returncode == 0, done.stdout + done.stderr
    return Tabled(cli, result, done.stdout.splitlines())


def test_many_shapes_are_tuned_in_one_run(tabled: Tabled) -> None:
    """Each shape has a study, and a row of the table with a config that is about as fast as its best."""
    arguments = [row[0] for row in tabled.rows]
    assert arguments == [{"M": 2, "N": 128}, {"M": 3, "N": 128}, {"M": 4, "N": 256}]
    assert [len(study["trials"]) for study in tabled.result["studies"]] == [2, 2, 2]
    assert all(1 <= row["slowdown"] <= 1.5 for row in tabled.result["rows"])
    assert tabled.result["curve"][-1]["share"] == 1


def test_a_table_for_many_shapes_is_what_tuned_kernels_use(tabled: Tabled) -> None:
    """The table's config is each shape's choice; from Python likewise. What is not a shape is refused."""
    *chosen, exported, unknown, twin = tabled.said[:6]
    assert [json.loads(line) for line in chosen] == tabled.rows
    assert exported == "2"
    assert unknown.startswith("refused.toml:3: double has no argument 'MM'")
    assert twin.startswith("refused.toml:3: these are the arguments of refused.toml:1, too")


def test_shapes_that_are_known_are_not_measured_again(tabled: Tabled) -> None:
    """Neither where a file lists them nor where options do, each combination being a shape with a name."""
    again = tabled.cli.run("tune", "double.py", "--shapes", "shapes.toml", *WITHIN)
    assert again.returncode == 0
    assert "6 known from earlier runs" in again.stdout
    assert "for all 3 shapes, each within 50 % of its best" in again.stdout
    options = ("tune", "double.py", "--shape", "usual")
    sizes = tabled.cli.run_json(*options, "--arg", "M=2,3", *WITHIN)
    assert [row["name"] for row in sizes["rows"]] == ["usual: M=2", "usual: M=3"]
    assert [row["arguments"] for row in sizes["rows"]] == [{"M": 2, "N": 128}, {"M": 3, "N": 128}]
    assert all(trial["reused"] for study in sizes["studies"] for trial in study["trials"])
    named = tabled.cli.run(*options, "--shape", "unusual")
    assert (named.returncode, named.stderr.count("\n")) == (2, 1)
    assert "--shape unusual: double has no shape 'unusual' (it has: usual)" in named.stderr


def test_tuned_kernels_run_with_what_was_found_and_one_process_builds(tabled: Tabled) -> None:
    """A tuned shape is loaded; a new one that many processes ask for at once has one build. It gets the
    config of the nearest shape, unless that is not wanted.
    """
    built, guess, refused = tabled.said[6:]
    assert built == "built 1 in 8"
    assert guess.startswith("double M=4 N=512 runs with block=")
    assert guess.endswith(", which won for M=4 N=128, the nearest tuned shape")
    assert refused.startswith("no config of double is known for float32[4, 512] on ")


def test_choices_move_to_another_home(tabled: Tabled, tmp_path: Path) -> None:
    """A study dispatches shapes of its own and others; what it exports is imported whole, or not at all."""
    own, other = (
        CommandLine(tabled.cli.cwd, {**tabled.cli.env, "TILEYARD_HOME": home})
        for home in ("own", str(tmp_path / "other"))
    )
    exported = own.run_here("export", "double").stdout
    assert exported == (tabled.cli.cwd / "winner.json").read_text()
    table: dict[str, Any] = {}
    exec(own.run_here("export", "--form", "python").stdout, table)
    (configs,) = table["CONFIGS"].values()
    assert list(configs) == [("double", (("M", 4), ("N", 128)))]
    refused = other.run_here("export")
    assert (refused.returncode, "no winner is recorded" in refused.stderr) == (2, True)
    done = other.run("import", "winner.json")
    assert (done.returncode, done.stdout.split()[:3]) == (0, ["1", "choice", "imported"])
    assert other.run_here("export").stdout == exported
    for name in ("script.py", "absent.json"):
        assert other.run_here("import", name).returncode == 2
