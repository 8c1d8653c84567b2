"""The compile worker: what it builds is in the store, and nothing is compiled twice."""

import os
from pathlib import Path

import pytest

from tileyard.artifacts.manifest import Build, find_artifact, find_build
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import BuildKey, Elaborated, Kernel, Outcome
from tileyard.processes.wire import CHANNEL_VARIABLE, encode_frame, format_channel, open_pipes
from tileyard.targets.cpu.target import CpuTarget
from tileyard.targets.registry import PROGRAM_FILE
from tileyard.workers.compiler import Compiler, main
from tileyard.workers.protocol import BuildKernel, BuildKernels, BuiltKernels, DescribeTarget

pytestmark = pytest.mark.slow

PROGRAM = """def twice(A: float32[64], B: out.float32[64]):
    bx: grid[2]
    threads({threads})

    for i in parallel(32):
        B[bx * 32 + i] = A[bx * 32 + i] * 2.0
"""


def build(compiler: Compiler, key: str, text: str) -> Build:
    """Build a Program under a key."""
    compiler.answer(DescribeTarget(target="cpu", plugins={}))
    kernel = Kernel(name="twice", program=text)
    request = BuildKernel(
        case="c", build=BuildKey(key), elaborated=Elaborated(kernel=kernel), options={}
    )
    reply = compiler.answer(BuildKernels(kernels=(request,)))
    assert isinstance(reply, BuiltKernels)
    return reply.verdicts[0]


class CountingTarget(CpuTarget):
    """Counts how often it warms up."""

    warmed = 0

    def warm_up(self) -> None:
        """Count."""
        CountingTarget.warmed += 1


@pytest.mark.parametrize(
    ("warms_up", "builds", "warmed"), [(False, 0, 0), (False, 2, 1), (True, 0, 1), (True, 2, 1)]
)
def test_a_worker_warms_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, warms_up: bool, builds: int, warmed: int
) -> None:
    """Before its first build, or ahead of it if builds will follow."""
    plugins = {"counting": f"{__name__}:CountingTarget"}
    describe = DescribeTarget(target="counting", plugins=plugins, warms_up=warms_up)
    monkeypatch.setattr(CountingTarget, "warmed", 0)
    requests = (describe, *[BuildKernels(kernels=())] * builds)
    with open_pipes() as ((read_fd, write_fd), theirs):
        monkeypatch.setenv(CHANNEL_VARIABLE, format_channel(*theirs))
        os.write(write_fd, b"".join(map(encode_frame, requests)))
        os.close(write_fd)
        main(str(tmp_path), "counting")
        os.close(read_fd)
    assert CountingTarget.warmed == warmed


def test_an_artifact_has_binary_source_and_program(tmp_path: Path) -> None:
    """What was built is found by its key, with the Program's text beside it."""
    text = PROGRAM.format(threads=128)
    assert build(Compiler(tmp_path), "a" * 40, text).outcome is Outcome.PASSED
    artifact = find_artifact(BuildKey("a" * 40), ObjectStore(tmp_path / "objects"))
    assert artifact is not None
    expected = text
    assert artifact.file(PROGRAM_FILE).read_text() == expected
    assert "kernel.so" in artifact.manifest.files


def test_the_record_of_a_build_is_that_of_its_artifact(tmp_path: Path) -> None:
    """Files, binary and details are the artifact's, whether it was built just now or is found."""
    key = BuildKey("a" * 40)
    built = build(Compiler(tmp_path), key, PROGRAM.format(threads=128))
    found = find_build(key, ObjectStore(tmp_path / "objects"))
    assert found is not None
    assert built.build == found.build == key
    assert {"kernel.so", PROGRAM_FILE} <= set(built.files)
    assert (built.files, built.binary, built.details) == (found.files, found.binary, found.details)
    assert find_build(BuildKey("b" * 40), ObjectStore(tmp_path / "objects")) is None


def test_programs_that_give_the_same_source_are_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of threads changes no C, so the second build needs no compiler."""
    build(Compiler(tmp_path), "a" * 40, PROGRAM.format(threads=128))
    compiler = Compiler(tmp_path)
    compiler.answer(DescribeTarget(target="cpu", plugins={}))
    monkeypatch.setattr(
        "tileyard.targets.cpu.toolchain.Toolchain.compile_kernel",
        lambda *_: pytest.fail("the compiler was called"),
    )
    expected = Outcome.PASSED
    assert build(compiler, "b" * 40, PROGRAM.format(threads=256)).outcome is expected
    first, second = (
        find_artifact(BuildKey(key * 40), ObjectStore(tmp_path / "objects")) for key in "ab"
    )
    assert first is not None
    assert second is not None
    assert first.manifest.binary == second.manifest.binary


def test_a_refused_program_names_its_reason(tmp_path: Path) -> None:
    """A Program that breaks a rule is a compile error with one line."""
    built = build(
        Compiler(tmp_path), "c" * 40, PROGRAM.format(threads=1).replace("* 2.0", "* C[0]")
    )
    expected = Outcome.COMPILE_ERROR
    assert built.outcome is expected
    assert built.message
