"""A fault of one config is that config's outcome, and nobody else's."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import KERNELS, CommandLine

pytestmark = pytest.mark.slow

FAULTS = str(KERNELS / "faults.py")
LIMITS = ("--run-limit", "4s", "--memory-limit", "2GiB")
COMMON = ("--config", "block=32,64", *LIMITS, "--target", "crashing")
CRASHING = {
    "TILEYARD_PLUGINS": "crashing=crashing:CrashingTarget",
    "PYTHONPATH": os.pathsep.join(
        [str(KERNELS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    ),
}
OUTCOME_OF = {
    "none": "passed",
    "wrong_result": "mismatch",
    "endless_loop": "timeout",
    "stray_index": "runtime_error",
    "segmentation_fault": "crashed",
    "compile_error": "compile_error",
    "memory": "out_of_memory",
}


def by_config(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The trials of a result by their config."""
    return {json.dumps(t["config"], sort_keys=True): t for t in result["trials"]}


@dataclass(frozen=True, kw_only=True)
class Storm:
    """A run in which every fault occurred beside two healthy configs, and the processes that it left."""

    file: Path
    result: dict[str, Any]
    left: list[psutil.Process]


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Storm:
    """The run, which tests only look at."""
    cli = CommandLine(tmp_path_factory.mktemp("storm"), dict(CRASHING))
    file = cli.cwd / "faults.py"
    once = "where=lambda fault, block: block == 32 or fault == 'none', reference="
    file.write_text(Path(FAULTS).read_text(encoding="utf-8").replace("reference=", once))
    faults = f"fault={','.join(OUTCOME_OF)}"
    result = cli.run_json("tune", str(file), "--config", faults, *COMMON)
    return Storm(file=file, result=result, left=leftovers(cli))


def test_each_fault_has_its_own_outcome_and_spreads_no_further(
    knowing: CommandLine, storm: Storm
) -> None:
    """Faults end as what they are; healthy configs keep keys, outcomes and the winner."""
    knowing.env.update(CRASHING)
    stormy = storm.result
    calm = knowing.run_json("tune", str(storm.file), "--config", "fault=none", *COMMON)
    assert len(calm["trials"]) == 2
    assert len(stormy["trials"]) == len(OUTCOME_OF) + 1
    for trial in stormy["trials"]:
        expected = OUTCOME_OF[trial["config"]["fault"]]
        assert trial["outcome"] == expected, trial
        assert expected == "passed" or trial["message"]
    for config, trial in by_config(calm).items():
        other = by_config(stormy)[config]
        assert (other["keys"], other["outcome"]) == (trial["keys"], trial["outcome"])
    assert stormy["best"]["config"] == calm["best"]["config"]
    assert storm.left == []


def leftovers(cli: CommandLine) -> list[psutil.Process]:
    """Processes that still work for this home."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(cli.home) in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def test_messages_say_what_happened(storm: Storm) -> None:
    """Signals, limits, elements and operations are named."""
    trials = [t for t in storm.result["trials"] if t["config"]["block"] == 32]
    messages = {t["config"]["fault"]: t["message"] for t in trials}
    assert "SIGSEGV" in messages["segmentation_fault"]
    assert "an index of tile is outside its shape [32]" in messages["stray_index"]
    assert "run limit of 4 s" in messages["endless_loop"]
    assert "256 of 256 elements are wrong" in messages["wrong_result"]
    assert "call_extern" in messages["compile_error"]
    assert "faults.py:" in messages["compile_error"]


def test_a_compiler_that_hangs_is_a_timeout(knowing: CommandLine, tmp_path: Path) -> None:
    """A build that does not end is ended, with everything that it started."""
    compiler = tmp_path / "slow-cc"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *--version*|*-Q*|*-dM*) exec cc "$@";; esac\n'
        'case "$*" in *kernel*) exec sleep 1000;; esac\nexec cc "$@"\n',
        encoding="utf-8",
    )
    compiler.chmod(0o755)
    knowing.env["CC"] = str(compiler)
    result = knowing.run_json(
        "tune", FAULTS, "--config", "fault=none", "--config", "block=32", "--build-limit", "2s"
    )
    expected = ["timeout"]
    assert [t["outcome"] for t in result["trials"]] == expected
    assert "build limit of 2 s" in result["trials"][0]["message"]


def test_a_wider_limit_tries_again(knowing: CommandLine) -> None:
    """A recorded timeout answers for the same limit, and not for a longer one."""
    command = ("tune", FAULTS, "--config", "fault=endless_loop", "--config", "block=32")
    runs = [knowing.run_json(*command, "--run-limit", limit) for limit in ("0.3s", "0.3s", "0.6s")]
    expected = [False, True, False]
    assert [run["trials"][0]["reused"] for run in runs] == expected
    assert {run["trials"][0]["outcome"] for run in runs} == {"timeout"}


UNWRITTEN = """
import numpy as np
import tilelang
import tilelang.language as T


def reference(X):
    return np.where(X > -1, 5, -128).astype(np.int8)


@tilelang.jit(out_idx=[-1])
def saturated(N=250, block=32):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "int8")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                if X[bx * block + i] > -1.0:
                    Y[bx * block + i] = T.int8(5)
    return main
"""


def test_what_is_not_written_is_wrong_where_the_memory_held_the_right_value(
    cli: CommandLine,
) -> None:
    """Memory of int8 holds -128 before the run, which is right here; a further run holds something else."""
    (cli.cwd / "saturated.py").write_text(UNWRITTEN, encoding="utf-8")
    command = ("tune", "saturated.py", "--reference", "reference", "--no-check-sync")
    (trial,) = cli.run_json(*command)["trials"]
    assert trial["outcome"] == "mismatch"
    expected = (
        "41 of 250 elements of Y depend on what Y held before the run: they are not written, or "
        "read before"
    )
    assert trial["message"].startswith(expected)
    assert trial["mismatch"]["index"] == [6]
