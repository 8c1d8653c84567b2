"""What is built here is tuned, and used, where there are neither sources nor TileLang."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DECIDED, CommandLine
from tests.e2e.bare_host import make_bare, run_bare
from tests.e2e.test_dispatch import KERNEL

pytestmark = pytest.mark.slow

DECLARED = KERNEL.replace(
    "reference=",
    "where=lambda M, block: M % 4 == 0, flops=lambda M, N: M * N, tolerance=(0.01, 0.01), reference=",
).replace("def double(M, N, block=32):", "def double(N, block=32):\n    M = T.dynamic('M')")
BUILT = (
    "when this kernel was built, and not for M=3 (build it for that, or use tileyard.tuned with "
    "its source)"
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
fewer = known[:3]
for call in (
    lambda: space(known),
    lambda: winners(new),
    lambda: tileyard.load(f"{sys.argv[2]}::triple"),
    lambda: space["double/block=64"](fewer),
    lambda: winners["double M=4 N=128"](fewer),
    lambda: study.best.load()(fewer),
):
    try:
        call()
    except tileyard.TileyardError as error:
        print(error)
assert "tilelang" not in sys.modules
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """Where a kernel is, beside a bundle of all its configs."""
    host = CommandLine(tmp_path_factory.mktemp("here"), {**DECIDED})
    (host.cwd / "double.py").write_text(DECLARED)
    done = host.run("compile", "double.py", "--all-configs", "-o", "space.tyb")
    assert done.returncode == 0, done.stderr
    return host


@dataclass(frozen=True)
class Tuned:
    """A host without sources and TileLang where the bundle was tuned, and what came of it."""

    host: CommandLine
    study: dict[str, Any]


@pytest.fixture(scope="module")
def there(here: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """The study, in fresh processes."""
    host = make_bare(tmp_path_factory.mktemp("elsewhere") / "there")
    host.env.update(DECIDED)
    said = run_bare(host, "tune", "--from", str(here.cwd / "space.tyb"), "--json")
    return Tuned(host, json.loads(said))


def ask(host: CommandLine, *arguments: str) -> str:
    """What a command prints that needs no engine, in this process; it must end well."""
    done = host.run_here(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_bundle_is_tuned_elsewhere_and_its_trials_come_back(
    here: CommandLine, there: Tuned, tmp_path: Path
) -> None:
    """Finals, winner and choice are there and here; a tuning run of the sources measures nothing again."""
    study = there.study
    assert [trial["outcome"] for trial in study["trials"]] == ["passed", "passed"]
    assert [trial["config"] for trial in study["trials"]] == [{"block": 32}, {"block": 64}]
    assert study["flops"] == 512
    again = there.host.run_json("tune", "--from", str(here.cwd / "space.tyb"))
    assert [trial["reused"] for trial in again["trials"]] == [True, True]

    carried = str(tmp_path / "trials.jsonl")
    ask(there.host, "trials", "export", study["run"], "-o", carried)
    count = len(Path(carried).read_text().splitlines()) - 2  # the first line, and the choice
    for known in ("", f", {count} were here already"):
        said = ask(here, "trials", "import", carried)
        assert said == f"{0 if known else count} trials imported into {here.home}{known}\n"
    winner = study["best"]["id"]
    assert winner in ask(here, "trials", "--run", study["run"])
    ask(here, "trials", "export", study["run"], "--as", "space", "-o", "space.jsonl")
    replayed = json.loads(ask(here, "tune", "--replay", "space.jsonl", "--json"))
    assert (replayed["configs"], replayed["trials"]) == (2, 1)
    ask(here, "show", winner)
    (choice,) = json.loads(ask(here, "export", "double"))["choices"]
    assert (choice["trial"], choice["file"]) == (winner, "double.py")
    found = here.run_json("tune", "double.py")
    assert all(trial["reused"] for trial in found["trials"])
    assert (found["best"]["id"], found["finals"]) == (winner, study["finals"])


def test_winners_run_where_there_is_no_tilelang(
    here: CommandLine, there: Tuned, tmp_path: Path
) -> None:
    """By names, or as a loaded bundle; what was not tuned, or is built elsewhere, is refused."""
    space, winners = str(here.cwd / "space.tyb"), str(tmp_path / "winners.tyb")
    ask(there.host, "export", "double", "--binaries", "-o", winners)
    third = make_bare(tmp_path / "third")
    third.env.update(DECIDED)
    assert third.run("import", winners).stdout.startswith("1 choice imported into ")
    done = subprocess.run(
        [sys.executable, "-c", USE, space, winners],
        cwd=third.cwd,
        env=third.environment(),
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
        str(there.study["best"]["config"]["block"]),
        f"space.tyb holds 2 cases (name one: {space}::CASE, of double/block=32, double/block=64)",
        "winners.tyb has no kernel for float32[4, 512] (it has double M=4 N=128)",
        "winners.tyb has no case 'triple' (it has double M=4 N=128)",
        *[f"where of double (double.py:6) was evaluated for M=4 {BUILT}"] * 3,
    ]
    for done, line in (
        (
            here.run("tune", "--from", winners),
            "bundle's kind: selection is needed, found winners",
        ),
        (here.run_here("import", space), "bundle's kind: winners is needed, found selection"),
    ):
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert line in done.stderr
