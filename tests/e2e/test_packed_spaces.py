"""What is built here is tuned, and used, where there are neither sources nor TileLang."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.e2e.bare_host import make_bare, run_bare
from tests.e2e.test_dispatch import KERNEL

pytestmark = pytest.mark.slow

DECLARED = KERNEL.replace(
    "reference=", "flops=lambda M, N: M * N, tolerance=(0.01, 0.01), reference="
)
USE = """
import sys

import numpy as np
import tileyard

known, new = np.ones((4, 128), np.float32), np.ones((4, 512), np.float32)
double = tileyard.tuned("double")
assert (double(known) == 2).all() and (double(known) == 2).all() and double.built == 0
for kernel, array in ((double, new), (tileyard.tuned("double", silicon="another"), known)):
    try:
        kernel(array)
    except tileyard.TileyardError as error:
        print(error)
study = tileyard.tune(from_=sys.argv[1])
assert (study.best.load()(known) == 2).all() and (study.dispatch()(known) == 2).all()
space, winners = (tileyard.load(path) for path in sys.argv[1:])
print(space)
print(winners)
print(tileyard.load(f"{sys.argv[1]}::block=32"))
print(winners["double M=4 N=128"].config["block"])
for call in (winners, space["double/block=64"]):
    assert (call(known) == 2).all()
for call in (lambda: space(known), lambda: winners(new), lambda: tileyard.load(f"{sys.argv[2]}::triple")):
    try:
        call()
    except tileyard.TileyardError as error:
        print(error)
assert "tilelang" not in sys.modules
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """Where a kernel is, beside a bundle of all its configs."""
    host = CommandLine(tmp_path_factory.mktemp("here"))
    (host.cwd / "double.py").write_text(DECLARED)
    done = host.run("compile", "double.py", "--all-configs", "-o", "space.tyb")
    assert done.returncode == 0, done.stderr
    return host


def refuse(host: CommandLine, *arguments: str) -> str:
    """The one line with which a command is refused."""
    done = host.run(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    return done.stderr


def test_a_bundle_is_tuned_elsewhere_and_its_trials_come_back(
    here: CommandLine, tmp_path: Path
) -> None:
    """Finals, winner and choice are there and here; a tuning run of the sources measures nothing again."""
    space = str(here.cwd / "space.tyb")
    there = make_bare(tmp_path / "there")
    study = json.loads(run_bare(there, "tune", "--from", space, "--json"))
    assert [trial["outcome"] for trial in study["trials"]] == ["passed", "passed"]
    assert [trial["config"] for trial in study["trials"]] == [{"block": 32}, {"block": 64}]
    assert study["flops"] == 512
    again = there.run_json("tune", "--from", space)
    assert [trial["reused"] for trial in again["trials"]] == [True, True]

    carried = str(tmp_path / "trials.jsonl")
    assert there.run("trials", "export", study["run"], "-o", carried).returncode == 0
    count = len(Path(carried).read_text().splitlines()) - 2  # the first line, and the choice
    for known in ("", f", {count} were here already"):
        said = here.run("trials", "import", carried).stdout
        assert said == f"{0 if known else count} trials imported into {here.home}{known}\n"
    winner = study["best"]["id"]
    assert winner in here.run("trials", "--run", study["run"]).stdout
    assert here.run("show", winner).returncode == 0
    (choice,) = json.loads(here.run("export", "double").stdout)["choices"]
    assert (choice["trial"], choice["file"]) == (winner, "double.py")
    found = here.run_json("tune", "double.py")
    assert all(trial["reused"] for trial in found["trials"])
    assert (found["best"]["id"], found["finals"]) == (winner, study["finals"])


def test_winners_run_where_there_is_no_tilelang(here: CommandLine, tmp_path: Path) -> None:
    """By their names, or as a bundle that is loaded; what was not tuned is refused, and so is what is built elsewhere."""
    space, winners = str(here.cwd / "space.tyb"), str(tmp_path / "winners.tyb")
    tuned, there = make_bare(tmp_path / "tuned"), make_bare(tmp_path / "there")
    best = tuned.run_json("tune", "--from", space)["best"]
    assert tuned.run("export", "double", "--binaries", "-o", winners).returncode == 0
    assert there.run("import", winners).stdout.startswith("1 choice imported into ")
    done = subprocess.run(
        [sys.executable, "-c", USE, space, winners],
        cwd=there.cwd,
        env=there.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shape, silicon, *loaded = done.stdout.splitlines()
    assert shape.startswith("no config of double is known for float32[4, 512] on ")
    assert "no config of double is known for float32[4, 128] on another " in silicon
    assert "; silicon= takes what won on " in silicon
    assert loaded == [
        "<bundle space.tyb: double/block=32, double/block=64>",
        "<bundle winners.tyb: double M=4 N=128>",
        "<kernel double M=4 N=128 block=32, target cpu>",
        str(best["config"]["block"]),
        f"space.tyb holds 2 cases (name one: {space}::CASE, of double/block=32, double/block=64)",
        "winners.tyb has no kernel for float32[4, 512] (it has double M=4 N=128)",
        "winners.tyb has no case 'triple' (it has double M=4 N=128)",
    ]
    assert "bundle's kind: selection is needed, found winners" in refuse(
        here, "tune", "--from", winners
    )
    assert "bundle's kind: winners is needed, found selection" in refuse(here, "import", space)
