"""A driver library that stands in for NVIDIA's, and artifacts to load with it. No GPU has any part in it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.conftest import ROOT
from tests.gpu.bare_kernels import SOURCES, compile_bare

STUB = Path(__file__).with_name("stub_driver") / "stub_cuda.c"
CLIENT = Path(__file__).with_name("stub_client.py")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a process said whose driver library is stubbed, and what its driver wrote down."""

    output: str
    errors: str
    log: list[str]

    def lines(self, word: str) -> list[str]:
        """The driver's lines that begin with this word, without it."""
        return [line.removeprefix(f"{word} ") for line in self.log if line.split(" ")[0] == word]


Ask = Callable[..., Answer]


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the stubbed ``libcuda.so.1``, compiled from our own source."""
    return compile_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every kernel of ``bare_kernels``, for two architectures."""
    pytest.importorskip("cuda.bindings.nvrtc")
    folder = tmp_path_factory.mktemp("bare")
    for name in SOURCES:
        for arch in ("sm_80", "sm_90a"):
            details, cubin = compile_bare(name, arch)
            (folder / f"{name}-{arch}.json").write_bytes(msgspec.json.encode(details))
            (folder / f"{name}-{arch}.cubin").write_bytes(cubin)
    return folder


@pytest.fixture
def ask(stub: Path, bare: Path, tmp_path: Path) -> Ask:
    """Runs a scene of ``stub_client`` in a process whose driver library is the stub."""

    def run(scene: str, *arguments: str, **variables: str) -> Answer:
        log = tmp_path / f"{scene}.log"
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, str(CLIENT), str(bare), scene, *arguments],
            env=stubbed(stub, log, {f"STUB_CUDA_{k}": v for k, v in variables.items()}),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        said = log.read_text().splitlines() if log.exists() else []
        return Answer(output=done.stdout, errors=done.stderr, log=said)

    return run


def compile_stub(folder: Path) -> Path:
    """Put the stubbed library into a folder; skips the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for the stubbed driver library")
    flags = ("-Wall", "-Werror", "-O1", "-shared", "-fPIC")
    subprocess.run([compiler, *flags, "-o", folder / "libcuda.so.1", STUB], check=True)
    return folder


def stubbed(stub: Path, log: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of such a process."""
    paths = {"LD_LIBRARY_PATH": str(stub), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return {**os.environ, **paths, "STUB_CUDA_LOG": str(log), **variables}
