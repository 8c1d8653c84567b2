"""Finding and asking the C compiler, and what hosts an artifact is refused on."""

import importlib.util
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.conftest import ROOT

from tileyard.artifacts.manifest import Artifact
from tileyard.base.errors import BindError, DamagedError, ToolMissingError, UsageError
from tileyard.ir.reader import read_program
from tileyard.targets.cpu.binary import CpuBinary
from tileyard.targets.cpu.machine import (
    Details,
    describe_machine,
    find_units,
    missing_features,
    read_details,
)
from tileyard.targets.cpu.target import CpuTarget
from tileyard.targets.cpu.toolchain import (
    CpuOptions,
    find_compiler,
    list_shifted,
    open_toolchain,
    parse_options,
)
from tileyard.testing.target_cases import make_source, store_artifact

NOTHING = """
def nothing(X: float32[4], Y: out.float32[4]):
    for i in parallel(4):
        Y[i] = X[i]
"""


def make_tool(folder: Path, name: str, script: str = "exit 0") -> str:
    """An executable shell script; returns its path."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("present", "expected"),
    [(["clang", "gcc", "cc"], "cc"), (["clang", "gcc"], "gcc"), (["clang"], "clang")],
)
def test_compilers_are_tried_in_order(
    present: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the compilers in PATH the first of cc, gcc and clang is taken."""
    for name in present:
        make_tool(tmp_path, name)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler("") == (expected,)


def test_zig_from_pypi_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any compiler in PATH, the ziglang package is used where it is installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "ziglang" or None)
    expected = (sys.executable, "-P", "-m", "ziglang", "cc")
    assert find_compiler("") == expected


def test_no_compiler_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a C compiler is told what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv("CC", raising=False)
    expected = "no C compiler is on this machine: cc, gcc and clang are not in PATH"
    with pytest.raises(ToolMissingError) as caught:
        CpuTarget().fingerprint()
    assert caught.value.message == expected
    assert "pip install ziglang" in caught.value.hint


def test_the_compiler_asked_for_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """``CC`` is taken at its word: another compiler is not used instead."""
    monkeypatch.setenv("CC", "no-such-cc -m64")
    expected = "the C compiler 'no-such-cc -m64' is not on this machine"
    with pytest.raises(ToolMissingError) as caught:
        CpuTarget().fingerprint()
    assert caught.value.message == expected


def test_a_compiler_with_arguments_is_split() -> None:
    """``CC`` may hold a command with arguments, as for ccache."""
    expected = (sys.executable, "-m", "cc")
    assert find_compiler(f"{sys.executable} -m cc") == expected


def test_a_broken_compiler_says_what_it_said(tmp_path: Path) -> None:
    """The first line of a compiler that fails is part of the message."""
    broken = make_tool(tmp_path, "cc", "echo out of order >&2; exit 3")
    with pytest.raises(ToolMissingError, match="cannot build for native: out of order"):
        open_toolchain(broken, CpuOptions())


@pytest.mark.slow
def test_an_unknown_cpu_level_is_refused() -> None:
    """A level that the compiler does not know fails before anything is built."""
    with pytest.raises(ToolMissingError, match="cannot build for x86-64-v99"):
        CpuTarget("x86-64-v99").fingerprint()


@pytest.mark.slow
def test_fingerprints_tell_levels_apart() -> None:
    """The same compiler has another fingerprint for another level, and the same one twice."""
    if describe_machine({}, is_native=False).arch != "x86_64":
        pytest.skip("levels of x86-64")
    levels = ["native", "x86-64", "x86-64-v3", "x86-64", "x86-64,optimize=2"]
    prints = [CpuTarget(level).fingerprint() for level in levels]
    expected = 4
    assert len(set(prints)) == expected
    assert prints[1] == prints[3]


@pytest.mark.parametrize(
    ("macros", "expected"),
    [
        ({"__AVX512F__": "1", "__AVX__": "1"}, (64, 32)),
        ({"__AVX__": "1"}, (32, 16)),
        ({"__SSE3__": "1"}, (16, 16)),
        ({"__ARM_NEON": "1"}, (16, 32)),
    ],
)
def test_machines_follow_from_the_compilers_macros(
    macros: dict[str, str], expected: tuple[int, int]
) -> None:
    """Vector width and registers are those of the widest vectors the compiler may use."""
    machine = describe_machine(macros, is_native=False)
    assert (machine.vector_bytes, machine.registers) == expected


@pytest.mark.parametrize(
    ("macros", "expected"),
    [
        (("__AVX512BF16__",), {"bf16": "AVX512-BF16"}),
        (("__AVX512VNNI__", "__AVXVNNI__"), {"i8": "AVX512-VNNI"}),
        (("__AVXVNNI__",), {"i8": "AVX-VNNI"}),
        (("__ARM_FEATURE_BF16_VECTOR_ARITHMETIC",), {"bf16": "BFDOT"}),
        (("__ARM_FEATURE_MATMUL_INT8",), {"i8": "USDOT"}),
        (("__ARM_FEATURE_DOTPROD",), {"s8": "SDOT", "u8": "UDOT"}),
        (("__AVX512F__", "__AVX512VL__"), {}),
    ],
)
def test_units_follow_from_the_compilers_macros(
    macros: tuple[str, ...], expected: dict[str, str]
) -> None:
    """Any of the features that have a unit is enough, and the one that the headers prefer is named."""
    machine = describe_machine(dict.fromkeys(macros, "1"), is_native=False)
    assert find_units(machine.features) == expected


def test_features_that_this_host_lacks_are_found() -> None:
    """Only features that the kernel does not list for this CPU are missing."""
    expected = ("no_such_feature",)
    assert missing_features(("no_such_feature",)) == expected
    assert missing_features(()) == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"arch": "sparc"}, "the artifact is for sparc"),
        ({"features": ("avx9000",)}, "the artifact needs a CPU with avx9000"),
        ({"abi": 99}, "version 99 of the CPU ABI"),
    ],
)
def test_artifacts_for_other_hosts_are_refused(
    change: dict[str, object], expected: str, build_text: Callable[[str], Artifact]
) -> None:
    """An artifact that this host cannot run is refused in one line, before it is loaded."""
    details = msgspec.json.decode(build_text(NOTHING).manifest.details, type=Details)
    text = msgspec.json.encode(msgspec.structs.replace(details, **change)).decode()
    with pytest.raises(BindError, match=expected):
        read_details(text)


def test_details_that_make_no_sense_are_damage() -> None:
    """A manifest whose details cannot be read is damaged, not a bug."""
    with pytest.raises(DamagedError, match="cannot be read"):
        read_details('{"signature": 7}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("native", "cpu"),
        ("x86-64-v3", "cpu:x86-64-v3"),
        ("native,vectors=128", "cpu:native,vectors=128"),
        ("unroll=1,vectors=128", "cpu:native,vectors=128,unroll=1"),
        ("x86-64-v4,unroll=1,optimize=3", "cpu:x86-64-v4,unroll=1"),
    ],
)
def test_a_target_is_named_after_its_options(text: str, expected: str) -> None:
    """Options are read from a target's name and written into it, the defaults left out."""
    again = expected.partition(":")[2] or "native"
    assert CpuTarget(text).name == expected
    assert CpuTarget(again).name == expected


@pytest.mark.parametrize("text", ["native,fast=1", "native,vectors=99", "native,unroll", "units=9"])
def test_an_option_of_the_compiler_that_is_not_known_is_refused(text: str) -> None:
    """An unknown option, or a value that it cannot have, is a usage error that lists what there is."""
    expected = f"the target cpu has no option {text.removeprefix('native,')}"
    with pytest.raises(UsageError) as caught:
        parse_options(text)
    assert caught.value.message == expected


def test_the_manual_lists_the_options() -> None:
    """Those that the message for an unknown one names."""
    with pytest.raises(UsageError) as caught:
        parse_options("fast=1")
    listed = re.findall(r"(\w+)=", caught.value.hint)
    page = (ROOT / "docs" / "reference" / "cpu-coverage.md").read_text()
    assert listed
    assert [name for name in listed if f"`{name}=" not in page] == []


def test_vectors_are_no_wider_than_asked_for() -> None:
    """Micro-kernels and loops are written for the width that was asked for."""
    expected = 16
    machine = CpuTarget("native,vectors=128").toolchain.machine
    assert machine.vector_bytes == expected


def test_units_may_be_left_out_or_all_be_plain() -> None:
    """Without any, with both ways of packing on whatever machine, or with those that the machine has."""
    none, own, plain = (CpuTarget(f"native,units={n}").toolchain for n in range(3))
    assert (none.machine.units, plain.machine.units) == ({}, {"bf16": "plain C", "i8": "plain C"})
    assert own.machine.units == find_units(own.machine.features)
    assert ["-DTY_UNITS=0" in one.flags for one in (none, own, plain)] == [True, False, True]


def test_shifted_targets_have_their_code_elsewhere(tmp_path: Path) -> None:
    """Each at another place within a cache line; where the code of one target lies does not change."""
    places = []
    for target in ("cpu", *list_shifted("cpu"), "cpu"):
        builder = CpuTarget(target.partition(":")[2] or "native")
        assert builder.name == target
        folder = tmp_path / str(len(places))
        (build,) = builder.build([make_source(read_program(NOTHING))], folder)
        places.append(CpuBinary(store_artifact(builder, build, folder)).kernel % 64)
    *others, again = places
    assert len(set(others)) == len(others) == 4
    assert again == others[0]
    assert "cpu:native" in list_shifted("cpu:native,shift=16")
