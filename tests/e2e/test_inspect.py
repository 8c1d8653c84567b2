"""What ``tileyard compile`` made for a GPU that is not here, in all its forms: printed, packed, inspected."""

import importlib.util
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine
from tests.e2e.gpu_builds import make_place

from tileyard.devices.cuda import has_driver

pytestmark = pytest.mark.slow


@dataclass
class Built:
    """A place where both configs of the kernel are built, a bundle of them, and what the run printed."""

    cli: CommandLine
    bundle: Path
    keys: dict[str, str]
    run: subprocess.CompletedProcess[str]

    @property
    def key(self) -> str:
        """The build key of the first config."""
        return self.keys["block=128"]

    def inspect(self, *arguments: str) -> str:
        """What is shown."""
        done = self.cli.run_here("inspect", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refuse(self, *arguments: str) -> str:
        """The one line that says why nothing is shown."""
        done = self.cli.run_here("inspect", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        return line

    def list_trials(self) -> list[dict[str, Any]]:
        """What is recorded, newest first."""
        trials: list[dict[str, Any]] = json.loads(self.cli.run_here("trials", "--json").stdout)
        return trials


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, gpu_caches: Path) -> Built:
    """The kernel for sm_80, with all of its configs, printed and packed."""
    cli = make_place(tmp_path_factory.mktemp("inspect"), gpu_caches)
    target = ("--target", "cuda:sm_80", "--compile-workers", "1")
    printed = ("--all-configs", "--emit", "cuda", "--resources", "-o", "third.tyb")
    run = cli.run("compile", "third.py", *target, *printed)
    assert run.returncode == 0, run.stderr
    built = Built(cli, cli.cwd / "third.tyb", {}, run)
    built.keys.update({trial["case"]: trial["keys"]["build"] for trial in built.list_trials()})
    assert len(built.keys) == 2
    return built


def test_compile_says_how_to_look_at_what_it_built(built: Built) -> None:
    """The table names each artifact, and a line below says what to do with such a name."""
    assert all(key[:10] in built.run.stderr for key in built.keys.values())
    assert f"tileyard inspect {built.key[:10]}" in built.run.stderr


def test_what_was_generated_is_printed_alone(built: Built) -> None:
    """The first config's source is on standard output for the next program; all else is on the other."""
    expected = "blockIdx.x) * 128"  # the first block of the space
    assert expected in built.run.stdout
    assert "blockIdx.x) * 256" not in built.run.stdout
    assert built.run.stdout.count("__global__") == 2  # a declaration and a definition
    assert "regs" in built.run.stderr
    assert "2 passed" in built.run.stderr


def test_a_bundle_says_what_it_needs(built: Built) -> None:
    """Target with architecture, and the drivers that load the cubin, stand in the bundle."""
    done = built.cli.run_here("bundle", "--inspect", str(built.bundle))
    expected = ("cuda:sm_80", "driver >=580")
    assert done.returncode in (0, 2), done.stderr  # 2 where it does not fit this machine
    assert all(part in done.stdout for part in expected), done.stdout


@pytest.mark.skipif(has_driver(), reason="there is an NVIDIA driver")
def test_a_bundle_is_refused_where_no_driver_is(cli: CommandLine, built: Built) -> None:
    """A host that cannot run what is in a bundle says so before anything is unpacked."""
    done = cli.run("test", "--from", str(built.bundle))
    expected = "third.tyb cannot be used here: driver: >=580 is needed, found none"
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not [*(cli.home / "objects" / "records").glob("build/**/*")]


def test_summary(built: Built) -> None:
    """Without an option: what it is, what made it, what lies in it, what it takes."""
    shown = built.inspect(built.key)
    expected = (
        "cuda:sm_80",
        "NVRTC 13.",
        "TileLang",
        built.key,
        "kernel.cubin",
        "registers",
        "--sass",
    )
    assert [part for part in expected if part not in shown] == []


@pytest.mark.parametrize("name", ["prefix", "trial", "config", "bundle"])
def test_an_artifact_has_many_names(built: Built, name: str) -> None:
    """The beginning of a build key, a trial, a config and a case of a bundle all name the artifact."""
    trials = built.list_trials()
    trial = next(t for t in trials if t["keys"]["build"] == built.key)
    builds = {t["keys"]["build"] for t in trials if t["case"] == "block=128"}
    names = {
        "prefix": built.key[:10],
        "trial": trial["id"],
        "config": "block=128",
        "bundle": f"{built.bundle}::block=128",
    }
    found = json.loads(built.inspect(names[name], "--json"))["build"]
    # Other tests build a config of that name, too: it names one of those.
    assert found in (builds if name == "config" else {built.key})


def test_a_bundle_is_looked_into_where_nothing_was_built(built: Built, tmp_path: Path) -> None:
    """A bundle needs no home, and the home gets nothing of it."""
    cli = CommandLine(tmp_path)
    shown = cli.run("inspect", f"{built.bundle}::third/block=256", "--launch-record")  # as users do
    assert shown.returncode == 0, shown.stderr
    assert "grid     4 x 1 x 1" in shown.stdout
    assert not cli.home.exists()


def test_the_cases_of_a_bundle_are_listed(built: Built) -> None:
    """With what each takes, and how to inspect one; what is shown of one case asks for its name."""
    lines = built.inspect(str(built.bundle)).splitlines()
    assert [line.split()[0] for line in lines[:3]] == [
        "case",
        "third/block=128",
        "third/block=256",
    ]
    assert lines[-1].endswith(f"tileyard inspect {built.bundle}::third/block=128")
    assert "third.tyb holds 2 cases (name one: " in built.refuse("third.tyb", "--sass")


def test_source(built: Built) -> None:
    """The CUDA source is that of the device function, and nothing else is printed."""
    shown = built.inspect(built.key, "--source")
    assert 'extern "C" __global__' in shown
    assert "main_kernel_" in shown


def test_launch(built: Built) -> None:
    """The launch record names sizes and arguments in order."""
    lines = built.inspect(built.key, "--launch-record").splitlines()
    expected = [
        "  grid     8 x 1 x 1",
        "  block    128 x 1 x 1",
        "  shared   0 bytes dynamic",
        "  argument 0: address of A",
        "  argument 1: address of B",
    ]
    assert lines[0] == "def third(A: float32[1024], B: out.float32[1024])"
    assert lines[2].startswith("launch 1: main_kernel_")
    assert lines[3:] == expected


def test_resources_and_log_together(built: Built) -> None:
    """Several parts stand below each other, each with its name."""
    shown = built.inspect(built.key, "--resources", "--log")
    assert shown.index("---- resources ----") < shown.index("---- log ----")
    assert "ptxas info" in shown


def test_machine_code_is_that_of_this_artifact_alone(built: Built) -> None:
    """Kernels that were compiled together are shown each for itself."""
    shown = built.inspect(built.key, "--sass")
    assert shown.count("STO_CUDA_ENTRY") == 1
    assert "EXIT" in shown


def test_machine_code_without_nvdisasm(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nvdisasm is missing, one line says what to install; one beside the user does not count."""
    planted = built.cli.cwd / "nvdisasm"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    done = built.cli.run_here("inspect", built.key, "--sass", PATH=":/nonexistent")
    expected = "tileyard: nvdisasm is not on this machine (pip install nvidia-cuda-nvdisasm)\n"
    assert (done.returncode, done.stderr) == (2, expected)


def test_ptx_is_made_of_the_kept_source(built: Built) -> None:
    """PTX names the architecture and the same function as the cubin."""
    shown = built.inspect(built.key, "--ptx")
    symbol = json.loads(built.inspect(built.key, "--json"))["details"]["launch"]["launches"][0][
        "symbol"
    ]
    assert ".target sm_80" in shown
    assert f".visible .entry {symbol}(" in shown


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("nothing", "has an id that begins with 'nothing'"),
        ("0123456789", "has an id that begins with '0123456789'"),
        ("0123456789abcdef", "there is no artifact 0123456789abcdef"),
        ("third.tyb::block=1", "third.tyb has no case 'block=1'"),
        ("third.py", "third.py"),
    ],
)
def test_names_of_nothing(built: Built, named: str, expected: str) -> None:
    """What names no artifact, or several, is refused in one line."""
    assert expected in built.refuse(named)


def test_what_was_removed_is_said_to_be_gone(built: Built, tmp_path: Path) -> None:
    """A trial whose artifact is not there any more says so."""
    shutil.copytree(built.cli.home, tmp_path / "home", symlinks=True)
    shutil.rmtree(tmp_path / "home" / "objects" / "records" / "build")
    done = CommandLine(tmp_path).run_here("inspect", "block=128")
    assert done.returncode == 2
    assert "build it again" in done.stderr


def test_an_artifact_for_the_cpu(built: Built) -> None:
    """What a CPU's artifact has is shown, and what it has not is refused, also by the run that builds it."""
    done = built.cli.run("compile", "third.py", "--emit", "cuda")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no kernel.cu was generated for cpu (there is: program, c)" in done.stderr
    (key,) = {
        trial["keys"]["build"]
        for trial in built.list_trials()
        if (trial["target"], trial["outcome"]) == ("cpu", "skipped")  # built, and not run
    }
    assert "void" in built.inspect(key, "--source")
    assert "this artifact is for cpu" in built.refuse(key, "--launch-record")
    assert "has no compiler.log" in built.refuse(key, "--log")


def test_pass_options_are_not_passed_over(built: Built) -> None:
    """A target whose compiler has no passes of TileLang's refuses options for them."""
    (config,) = built.cli.run_json("compile", "third.py", "--pass", "tl.enable_fast_math=1")[
        "configs"
    ]
    expected = (
        "compile_error",
        "this target takes no pass options, so it cannot heed tl.enable_fast_math",
    )
    assert (config["outcome"], config["message"]) == expected
