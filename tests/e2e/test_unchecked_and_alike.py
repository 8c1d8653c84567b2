"""Results that nobody checked, and configs that come to one binary, as a user meets them."""

import json

import pytest
from tests.conftest import DECIDED, CommandLine

pytestmark = pytest.mark.slow

KERNELS = """
import tilelang.language as T

import tileyard


def right(A):
    return A + 1


@tileyard.kernel(space={"threads": [64, 128], "block": [32, 64]}, shapes={"some": {"N": 256}})
def plus_one(N, threads=128, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 1.0

    return main
"""


@pytest.fixture
def place(knowing: CommandLine) -> CommandLine:
    """A folder with a kernel that declares no reference."""
    (knowing.cwd / "plus.py").write_text(KERNELS, encoding="utf-8")
    knowing.env.update(DECIDED)
    return knowing


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("tune", "plus.py", "--trials", "1"), ", unchecked: no reference"),
        (("run", "plus.py"), "unchecked: no reference"),
        (("test", "plus.py"), ", 1 case unchecked: no reference"),
    ],
)
def test_what_nobody_checked_is_said_last_and_fails_where_a_check_is_required(
    place: CommandLine, command: tuple[str, ...], expected: str
) -> None:
    """By tune, run and test alike."""
    done = place.run(*command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(expected)
    required = place.run(*command, "--require-check")
    assert required.returncode == 1, required.stdout
    assert "a check is required" in required.stdout


def test_configs_with_one_binary_are_measured_once(place: CommandLine) -> None:
    """They end alike and are listed together; a further one is not measured; a required check is made."""
    command = ("tune", "plus.py", "--reference", "right", "--require-check")
    first = place.run_json(*command)
    trials = {(t["config"]["threads"], t["config"]["block"]): t for t in first["trials"]}
    assert len(trials) == 4
    for block in (32, 64):
        alike = [trials[threads, block] for threads in (64, 128)]
        assert {trial["outcome"] for trial in alike} == {"passed"}
        assert len({trial["id"] for trial in alike}) == 2
        assert len({json.dumps(trial["measurement"]) for trial in alike}) == 1
    expected = 2
    events = (place.home / "runs" / f"{first['run']}.jsonl").read_text(encoding="utf-8")
    started = [line for line in events.splitlines() if "case_started" in line]
    later = ('"f0', '"meeting-', "-again")
    screened = [line for line in started if not any(one in line for one in later)]
    assert len(screened) == expected
    again = place.run(*command, "--config", "threads=32,64,128")
    assert again.returncode == 0, again.stderr
    assert "4 known from earlier runs" in again.stdout
    assert "4 of them have the binary of another config" in again.stdout
    assert "threads=32|64|128" in again.stdout
