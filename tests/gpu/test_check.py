"""``make gpu-check`` without a GPU, and against a stubbed driver library: nothing here runs on one."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.gpu.conftest import stubbed

from tileyard.devices.cuda import has_driver

CHECK = Path(__file__).with_name("check.py")

pytestmark = pytest.mark.slow


def check(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Its exit code and what it said."""
    command = [sys.executable, str(CHECK), str(folder), *arguments]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.skipif(has_driver(), reason="there is a driver")
def test_without_a_gpu_nothing_is_run(tmp_path: Path) -> None:
    """It says so, and that is not a failure."""
    expected = (0, "nothing was run: this host has no NVIDIA GPU\n")
    assert check(tmp_path) == expected


def make_folder(folder: Path, bare: Path) -> None:
    """Two artifacts as ``make gpu-artifacts`` writes them, one of which must end by an illegal access."""
    plan = {
        name: {
            "inputs": ["A"],
            "outputs": ["B"],
            "scalars": [0.5, 3] if kernel == "scale" else [],
            "rtol": 0.0,
            "atol": 0.0,
            "like": "",
            "fault": fault,
            "reads_old": False,
        }
        for name, kernel, fault in (
            ("add", "scale", ""),
            ("stray", "mapped", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        )
    }
    (folder / "sm_90a").mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    for name, kernel, shape in (("add", "scale", (100,)), ("stray", "mapped", (100, 64))):
        np.savez(folder / f"{name}.npz", in_A=np.ones(shape, np.float32))
        built = bare / f"{kernel}-sm_90a"
        shutil.copy(built.with_suffix(".json"), folder / "sm_90a" / f"{name}.json")
        packed = gzip.compress(built.with_suffix(".cubin").read_bytes())
        (folder / "sm_90a" / f"{name}.cubin.gz").write_bytes(packed)


@pytest.mark.parametrize("does_fail", [True, False])
def test_a_fault_must_come_and_harm_nobody_else(
    stub: Path, bare: Path, tmp_path: Path, *, does_fail: bool
) -> None:
    """Driver stubbed: each kernel has its process; a kernel that should fail and does not is a failure."""
    make_folder(tmp_path / "built", bare)
    faults = {"STUB_CUDA_FAULT": "mapped:700"} if does_fail else {}
    env = stubbed(stub, tmp_path / "log", faults)
    code, said = check(tmp_path / "built", "--stubbed", str(tmp_path), env=env)
    ends = "2 well, 3 not run" if does_fail else "1 well, 1 failed, 3 not run"
    expected = f"2 kernels and 3 studies: {ends}"
    assert "tune --from         not run: no space was built for this architecture" in said
    assert expected in said
    assert code == (0 if does_fail else 1)
    figures = json.loads((tmp_path / "gpu-stub-device-runs-nothing.json").read_text())
    assert figures["name"] == "stub device, runs nothing"
    assert figures["kernels"]["add"]["arch"] == "sm_90a"
