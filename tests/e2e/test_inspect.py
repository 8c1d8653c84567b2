"""``tileyard inspect``: an artifact that nothing here can run, in every form in which it can be read."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine
from tests.e2e.gpu_builds import make_place

pytestmark = pytest.mark.slow


@dataclass
class Built:
    """A place where both configs of the kernel are built, and a bundle of them."""

    cli: CommandLine
    bundle: Path
    configs: list[dict[str, Any]]
    said: str

    @property
    def key(self) -> str:
        """The build key of the first config."""
        return str(self.configs[0]["build"])

    def inspect(self, *arguments: str) -> str:
        """What is shown."""
        done = self.cli.run("inspect", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refuse(self, *arguments: str) -> str:
        """The one line that says why nothing is shown."""
        done = self.cli.run("inspect", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        return line


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, gpu_caches: Path) -> Built:
    """The kernel for sm_80, with all of its configs."""
    cli = make_place(tmp_path_factory.mktemp("inspect"), gpu_caches)
    asked = (
        "compile",
        "third.py",
        "--target",
        "cuda:sm_80",
        "--all-configs",
        "--compile-workers",
        "1",
    )
    result = cli.run_json(*asked, "-o", "third.tyb")
    again = cli.run(*asked, "--report")
    assert again.returncode == 0, again.stderr
    return Built(cli, cli.cwd / "third.tyb", result["configs"], again.stdout)


def test_compile_says_how_to_look_at_what_it_built(built: Built) -> None:
    """The table names each artifact, and a line below says what to do with such a name."""
    expected = [config["build"][:10] for config in built.configs]
    assert all(name in built.said for name in expected)
    assert f"tileyard inspect {expected[0]}" in built.said


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
    trials = built.cli.run_json("trials")
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
    shown = cli.run("inspect", f"{built.bundle}::third/block=256", "--launch-record")
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


def test_machine_code_without_nvdisasm(built: Built) -> None:
    """Where nvdisasm is missing, one line says what to install; one beside the user does not count."""
    planted = built.cli.cwd / "nvdisasm"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    hidden = "import importlib.util; importlib.util.find_spec = lambda name, package=None: None"
    script = built.cli.cwd / "without.py"
    script.write_text(
        f"import sys\n{hidden}\nfrom tileyard.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), "inspect", built.key, "--sass"],
        env=built.cli.environment({"PATH": ":/nonexistent"}),
        cwd=built.cli.cwd,
        capture_output=True,
        text=True,
        check=False,
    )
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
    done = CommandLine(tmp_path).run("inspect", "block=128")
    assert done.returncode == 2
    assert "build it again" in done.stderr


def test_an_artifact_for_the_cpu(built: Built) -> None:
    """What a CPU's artifact has is shown, and what it has not is refused."""
    (config,) = built.cli.run_json("compile", "third.py")["configs"]
    assert "void" in built.inspect(config["build"], "--source")
    assert "this artifact is for cpu" in built.refuse(config["build"], "--launch-record")
    assert "has no compiler.log" in built.refuse(config["build"], "--log")


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
