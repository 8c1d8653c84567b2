"""Many shapes tuned in one run, on the CPU, and the dispatch table in use."""

import json
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.e2e.test_dispatch import KERNEL, python

pytestmark = pytest.mark.slow

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

import numpy as np
import tileyard
from double import double

tuned = tileyard.tuned(double)
for shape in ((2, 128), (3, 128), (4, 256)):
    array = np.ones(shape, np.float32)
    assert (tuned(array) == 2).all()
    print(json.dumps(tuned.choose(array)))
assert tuned.built == 0

table = tileyard.tune(double, shapes={"small": {"M": [3, 2], "N": 128}}, within=0.5)
assert [arguments["M"] for arguments, _ in table.table] == [3, 2] and table.curve[-1].share == 1
assert (table.dispatch()(np.ones((2, 128), np.float32)) == 2).all()
table.export("table.json")
print(len(json.load(open("table.json"))["choices"]))

for text in ("[[shape]]\\nM = 4\\n[[shape]]\\nMM = 4", "[[shape]]\\nM = 4\\n[[shape]]\\nM = [3, 4]"):
    with open("refused.toml", "w") as file:
        file.write(text)
    try:
        tileyard.tune(double, shapes="refused.toml")
    except tileyard.TileyardError as error:
        print(error)
"""


def test_a_table_for_many_shapes_is_what_tuned_kernels_use(
    cli: CommandLine, tmp_path: Path
) -> None:
    """Each shape has a study, and the table's config as its choice; from Python likewise. What is not a shape is refused."""
    kernel = str(tmp_path / "double.py")
    (tmp_path / "double.py").write_text(KERNEL)
    (tmp_path / "shapes.toml").write_text(SHAPES)
    options = ("tune", kernel, "--shapes", "shapes.toml", "--within", "50%")
    result = cli.run_json(*options)
    rows = [(row["arguments"], row["trial"]["config"]) for row in result["rows"]]
    assert [arguments for arguments, _ in rows] == [
        {"M": 2, "N": 128},
        {"M": 3, "N": 128},
        {"M": 4, "N": 256},
    ]
    assert [len(study["trials"]) for study in result["studies"]] == [2, 2, 2]
    assert all(1 <= row["slowdown"] <= 1.5 for row in result["rows"])
    assert result["curve"][-1]["share"] == 1
    *chosen, exported, unknown, twin = python(cli, tmp_path, SCRIPT).splitlines()
    assert [json.loads(line) for line in chosen] == [list(row) for row in rows]
    assert exported == "2"
    assert unknown.startswith("refused.toml:3: double has no argument 'MM'")
    assert twin.startswith("refused.toml:3: these are the arguments of refused.toml:1, too")
    again = cli.run(*options)
    assert again.returncode == 0
    assert "6 known from earlier runs" in again.stdout
    assert "for all 3 shapes, each within 50 % of its best" in again.stdout
    sizes = cli.run_json("tune", kernel, "--shape", "usual", "--arg", "M=2,3", "--within", "50%")
    assert [row["name"] for row in sizes["rows"]] == ["usual: M=2", "usual: M=3"]
    assert [row["arguments"] for row in sizes["rows"]] == [{"M": 2, "N": 128}, {"M": 3, "N": 128}]
    assert all(trial["reused"] for study in sizes["studies"] for trial in study["trials"])
    named = cli.run("tune", kernel, "--shape", "usual", "--shape", "unusual")
    assert (named.returncode, named.stderr.count("\n")) == (2, 1)
    assert "--shape unusual: double has no shape 'unusual' (it has: usual)" in named.stderr
