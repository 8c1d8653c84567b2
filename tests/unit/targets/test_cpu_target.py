"""Verdicts of builds: refusals with their source line, compiler errors, what an artifact holds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Diagnostic, Elaborated, Kernel, Outcome, SourceLine
from tileyard.ir.nodes import Program
from tileyard.ir.reader import read_program
from tileyard.targets.base import Source
from tileyard.targets.cpu import target as target_module
from tileyard.targets.cpu.emit.program import Generated
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.targets.cpu.machine import Machine
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import make_source

SCALE = """
def scale(X: float32[64], Y: out.float32[64]):
    for i in parallel(64):
        Y[i] = X[i] * 2.0
"""

REFUSED = {
    "copy within t": """
def refused(X: float32[4, 8], Y: out.float32[4, 8]):
    t: shared.float32[4, 8]
    copy(X, t)
    copy(t[0 : +2, :], t[2 : +2, :])
    copy(t, Y)
""",
    "view u of t as float16": """
def refused(X: float32[4, 8], Y: out.float32[4, 8]):
    t: shared.float32[4, 8]
    u: shared.float16[64] = t
    copy(X, t)
    u[0] = float16(1.0)
    copy(t, Y)
""",
}


def with_lines(text: str, lines: dict[int, SourceLine]) -> Source:
    """A source whose statements came from these lines."""
    return Source(
        elaborated=Elaborated(kernel=Kernel(name="kernel", program=text.strip()), lines=lines)
    )


@pytest.mark.slow
def test_artifacts_are_complete(cpu: CpuTarget, tmp_path: Path) -> None:
    """An artifact holds the binary, the C that it was made from with its header, and the runtime."""
    (build,) = cpu.build([make_source(read_program(SCALE))], tmp_path)
    expected = {"kernel.so", "kernel.c", "tile.h", "runtime.so"}
    assert set(build.files) == expected
    assert all((tmp_path / "0" / name).stat().st_size for name in expected)


@pytest.mark.parametrize("expected", REFUSED)
def test_what_is_not_covered_is_a_compile_error(
    expected: str, cpu: CpuTarget, tmp_path: Path
) -> None:
    """A Program that the target does not cover is refused by name, and nothing is written."""
    (build,) = cpu.build([make_source(read_program(REFUSED[expected]))], tmp_path)
    assert build.outcome is Outcome.COMPILE_ERROR
    assert build.diagnostic is not None
    assert expected in build.diagnostic.message
    assert build.diagnostic.operation != ""
    assert list(tmp_path.iterdir()) == []


def test_refusals_name_the_users_line(cpu: CpuTarget, tmp_path: Path) -> None:
    """The line is that of the statement, not of the one before or around it."""
    lines = {number: SourceLine(file="kernel.py", line=10 + number) for number in range(3)}
    (build,) = cpu.build([with_lines(REFUSED["copy within t"], lines)], tmp_path)
    expected = SourceLine(file="kernel.py", line=11)
    assert build.diagnostic is not None
    assert build.diagnostic.where == expected


def test_invalid_programs_are_compile_errors(cpu: CpuTarget, tmp_path: Path) -> None:
    """A Program that breaks a rule of the tile IR is refused at its statement."""
    text = SCALE.replace("X[i] * 2.0", "Z[i] * 2.0")
    lines = {1: SourceLine(file="kernel.py", line=7)}
    (build,) = cpu.build([with_lines(text, lines)], tmp_path)
    assert build.outcome is Outcome.COMPILE_ERROR
    assert build.diagnostic is not None
    assert "Z" in build.diagnostic.message


def test_a_kernel_without_a_program_keeps_its_refusal(cpu: CpuTarget, tmp_path: Path) -> None:
    """What the frontend refused is the verdict, word for word."""
    expected = Diagnostic(message="call_extern foo is not covered", operation="call_extern")
    kernel = Kernel(name="kernel", refusal=expected)
    (build,) = cpu.build([Source(elaborated=Elaborated(kernel=kernel))], tmp_path)
    assert (build.outcome, build.diagnostic) == (Outcome.COMPILE_ERROR, expected)


@pytest.mark.slow
def test_each_source_has_its_own_verdict(cpu: CpuTarget, tmp_path: Path) -> None:
    """A refused kernel between two good ones harms neither."""
    good, bad = read_program(SCALE), read_program(REFUSED["view u of t as float16"])
    builds = cpu.build([make_source(program) for program in (good, bad, good)], tmp_path)
    expected = [Outcome.PASSED, Outcome.COMPILE_ERROR, Outcome.PASSED]
    assert [build.outcome for build in builds] == expected
    assert (tmp_path / "2" / "kernel.so").is_file()


@pytest.mark.slow
def test_source_lines_change_nothing(cpu: CpuTarget, tmp_path: Path) -> None:
    """The same Program from other lines of another file has the same C text and binary."""
    places = [{}, {0: SourceLine(file="moved.py", line=99), 1: SourceLine(file="moved.py", line=5)}]
    builds = cpu.build([with_lines(SCALE, lines) for lines in places], tmp_path)
    assert builds[0].binary == builds[1].binary
    expected = (tmp_path / "0" / "kernel.c").read_text()
    assert (tmp_path / "1" / "kernel.c").read_text() == expected


@pytest.mark.slow
def test_c_that_does_not_compile_is_a_compile_error(
    cpu: CpuTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the C compiler says is the log, and its first error the message."""
    real = target_module.generate

    def generate(
        program: Program,
        machine: Machine,
        lines: dict[int, SourceLine],
        *,
        is_sanitized: bool,
    ) -> Generated:
        generated = real(program, machine, lines, is_sanitized=is_sanitized)
        return replace(generated, text=generated.text + "\n#error planted\n")

    monkeypatch.setattr(target_module, "generate", generate)
    (build,) = cpu.build([make_source(read_program(SCALE))], tmp_path)
    assert build.outcome is Outcome.COMPILE_ERROR
    assert build.diagnostic is not None
    expected = "the C compiler failed"
    assert build.diagnostic.message.startswith(expected)
    assert "planted" in build.diagnostic.message
    assert "planted" in build.printed


def test_unknown_options_are_refused(cpu: CpuTarget, tmp_path: Path) -> None:
    """An option that the target does not have is a usage error, not ignored."""
    source = make_source(read_program(SCALE))
    odd = Source(elaborated=source.elaborated, options={"unroll": 4})
    expected = "target cpu has no option unroll"
    with pytest.raises(UsageError) as caught:
        cpu.build([odd], tmp_path)
    assert caught.value.message == expected


@pytest.mark.slow
def test_a_portable_level_builds_too(tmp_path: Path) -> None:
    """``cpu:x86-64-v3`` is built without what only this host's CPU has."""
    portable = CpuTarget("x86-64-v3")
    if portable.toolchain.machine.arch != "x86_64":
        pytest.skip("levels of x86-64")
    (build,) = portable.build([make_source(read_program(SCALE))], tmp_path)
    expected = Outcome.PASSED
    assert build.outcome is expected
    assert "avx2" in build.details
    assert "avx512f" not in build.details


@pytest.mark.slow
def test_prints_go_to_standard_output(
    load_text: Callable[[str], CpuLoaded], capfd: pytest.CaptureFixture[str]
) -> None:
    """Each print is one line: its message as it is, then the values."""
    text = """
def f(X: float32[2], Y: out.uint8[2]):
    h: local.bfloat16[1]
    for i in serial(2):
        h[0] = bfloat16(X[i])
        Y[i] = uint8(X[i])
        print("100 % \\"X\\"", i, X[i], h[0], Y[i], X[i] < 1.0)
    print("größe?\\\\n")
"""
    expected = '100 % "X" 0 0.100000001 0.100097656 0 1\n100 % "X" 1 2.5 2.5 2 0\ngröße?\\n\n'
    launch = load_text(text).bind([np.array([0.1, 2.5], np.float32)], [])
    launch.run()
    assert capfd.readouterr().out == expected
