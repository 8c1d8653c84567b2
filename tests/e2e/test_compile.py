"""``tileyard compile`` for NVIDIA's GPUs on a machine that has none: blame, bundles, and bad input."""

import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import KERNELS, CommandLine
from tests.e2e.gpu_builds import make_place

from tileyard.devices.cuda import has_driver

pytestmark = pytest.mark.slow

FAULTS = str(KERNELS / "gpu_faults.py")
LIGHT = str(KERNELS / "light.py")
TARGET = ("--target", "cuda:sm_90a")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, gpu_caches: Path) -> CommandLine:
    """A folder with a kernel, for commands that do not mind what others left in its home."""
    return make_place(tmp_path_factory.mktemp("place"), gpu_caches)


@pytest.fixture(scope="module")
def packed(place: CommandLine) -> subprocess.CompletedProcess[str]:
    """Build two configs, print what was generated, and pack them into ``third.tyb``."""
    printed = ("--emit", "cuda", "--report")
    return place.run("compile", "third.py", *TARGET, "--all-configs", *printed, "-o", "third.tyb")


@pytest.fixture(scope="module")
def bundle(place: CommandLine, packed: subprocess.CompletedProcess[str]) -> Path:
    """A bundle of two configs, made where no GPU is."""
    assert packed.returncode == 0, packed.stderr
    return place.cwd / "third.tyb"


@pytest.fixture(scope="module")
def blamed(tmp_path_factory: pytest.TempPathFactory, gpu_caches: Path) -> dict[str, dict[str, Any]]:
    """Configs of one request that end in every way, by their fault and size."""
    cli = make_place(tmp_path_factory.mktemp("blamed"), gpu_caches)
    faults = "fault=none,lowering,source,endless"
    command = ("compile", FAULTS, *TARGET, "--config", faults, "--config", "block=64")
    limits = ("--build-limit", "10s", "--compile-workers", "1", "--group-size", "8")
    result = cli.run_json(*command, *limits)
    for one in result["configs"]:
        one["log"] = (cli.home / one["log"]).read_text() if one["log"] else ""
    return {one["config"]["fault"]: one for one in result["configs"]}


def test_too_much_shared_memory_is_known_before_anything_runs(place: CommandLine) -> None:
    """No GPU of the architecture would launch it, so NVRTC is not asked."""
    sizes = ("block_M=256", "block_N=256", "block_K=64", "M=256", "N=256", "K=256")
    arguments = [word for size in sizes for word in ("--arg", size)]
    done = place.run("compile", f"{KERNELS / 'gemm.py'}::gemm", *TARGET, *arguments)
    expected = "a block needs 256 KiB of shared memory, and has at most 227 on sm_90a"
    assert expected in done.stdout
    assert done.returncode == 1


def test_each_culprit_has_its_own_outcome(blamed: dict[str, dict[str, Any]]) -> None:
    """What is healthy is built; what is not ends as what it is."""
    expected = {
        "none": "passed",
        "lowering": "compile_error",
        "source": "compile_error",
        "endless": "timeout",
    }
    assert {fault: one["outcome"] for fault, one in blamed.items()} == expected


def test_each_culprit_has_its_own_message(blamed: dict[str, dict[str, Any]]) -> None:
    """TileLang's reason with the user's line, NVRTC's own words, the limit that was passed."""
    messages = {fault: one["message"] for fault, one in blamed.items()}
    lines = Path(FAULTS).read_text(encoding="utf-8").splitlines()
    expected = 1 + next(i for i, line in enumerate(lines) if "tile = T.alloc_fragment" in line)
    assert messages["lowering"].startswith(f"{FAULTS}:{expected}: TileLang: ")
    assert "only fragment[0] access is allowed" in messages["lowering"].lower()
    assert 'error: identifier "nowhere" is undefined' in messages["source"]
    assert "build limit of 10 s" in messages["endless"]
    assert messages["none"] == ""


def test_logs_are_each_configs_own(blamed: dict[str, dict[str, Any]]) -> None:
    """What the compilers said of one config stands in its log, and in no other's."""
    expected = {"source"}
    assert {fault for fault, one in blamed.items() if "nowhere" in one["log"]} == expected
    assert "Traceback" in blamed["lowering"]["log"]


def test_a_bundle_says_what_it_needs(place: CommandLine, bundle: Path) -> None:
    """Target with architecture, and the drivers that load the cubin, stand in the bundle."""
    done = place.run("bundle", "--inspect", str(bundle))
    expected = ("cuda:sm_90a", "driver >=580")
    assert done.returncode in (0, 2), done.stderr  # 2 where it does not fit this machine
    assert all(part in done.stdout for part in expected), done.stdout


def test_what_was_generated_is_printed_alone(
    place: CommandLine, packed: subprocess.CompletedProcess[str]
) -> None:
    """The first config's source is on standard output for the next program; all else is on the other."""
    assert packed.returncode == 0, packed.stderr
    expected = "blockIdx.x) * 128"  # the first block of the space
    assert expected in packed.stdout
    assert "blockIdx.x) * 256" not in packed.stdout
    assert packed.stdout.count("__global__") == 2  # a declaration and a definition
    assert "registers" in packed.stderr
    assert "2 passed" in packed.stderr
    done = place.run("compile", "third.py", *TARGET, "--emit", "c")
    assert done.returncode == 2
    assert "no kernel.c was generated for cuda:sm_90a (there is: program, cuda)" in done.stderr
    assert not done.stdout


def test_tuning_says_which_configs_another_target_builds(place: CommandLine) -> None:
    """With the reason of those it does not; each can still be the best here. What was built is known then."""
    asked = ("tune", FAULTS, "--config", "fault=none,lowering", "--config", "block=64")
    done = place.run(*asked, "--also-build", "cuda:sm_90a")
    lines = done.stdout.splitlines()
    reasons = [line for line in lines if line.startswith("cuda:sm_90a: ")]
    assert done.returncode == 0, done.stderr
    assert "1 of 2 configs build for cuda:sm_90a" in lines
    assert [line.split()[1:3] for line in reasons] == [["compile_error", "fault=lowering"]]
    assert "only fragment[0] access is allowed" in reasons[0].lower()
    assert any(line.endswith(": 2 unchecked") for line in lines)
    assert lines[-1].startswith("best: ")
    twice = ("--also-build", "cuda:sm_90a", "--also-build", "cpu:x86-64-v2")
    first, second = place.run_json(*asked, *twice)["also_built"]
    ended = [(one["outcome"], one["reused"]) for one in first["configs"]]
    assert ended == [("passed", True), ("compile_error", True)]
    assert [one["outcome"] for one in second["configs"]] == ["passed", "passed"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("cuda:sm_9x", "there is no architecture 'sm_9x'"),
        ("gpu", "there is no target gpu (known targets: command, cpu, cuda)"),
    ],
)
def test_nothing_is_tuned_beside_a_target_that_does_not_exist(
    cli: CommandLine, target: str, expected: str
) -> None:
    """One line names it, before anything is measured."""
    assert expected in refused(cli, "tune", LIGHT, "--also-build", target)


@pytest.mark.skipif(has_driver(), reason="there is an NVIDIA driver")
def test_a_bundle_is_refused_where_no_driver_is(cli: CommandLine, bundle: Path) -> None:
    """A host that cannot run what is in a bundle says so before anything is unpacked."""
    done = cli.run("test", "--from", str(bundle))
    expected = "third.tyb cannot be used here: driver: >=580 is needed, found none"
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not built(cli)


@pytest.mark.skipif(has_driver(), reason="there is an NVIDIA driver")
def test_nothing_is_tuned_where_no_gpu_is(cli: CommandLine) -> None:
    """A run that needs a GPU is refused before anything is elaborated or built."""
    line = refused(cli, "tune", LIGHT, *TARGET)
    expected = "there is no device 'cuda'"
    assert expected in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--target", "cuda:sm_9"), "there is no architecture 'sm_9'"),
        (("--target", "cuda:sm_79"), "does not compile for sm_79"),
        (("--target", "cuda"), "the target cuda needs an architecture"),
        ((*TARGET, "--commit", "c0ffee"), "--commit has no effect without a bundle"),
        ((*TARGET, "--arg", "Q=3"), "add_one has no argument 'Q'"),
        ((*TARGET, "-o", "nowhere/third.tyb"), "there is no folder nowhere"),
        ((*TARGET, "-o", "."), "it is a folder"),
        ((*TARGET, "--reference", "nothing", "-o", "third.tyb"), "nothing"),
        ((*TARGET, "--emit", "cuda", "--json"), "--emit and --json both print"),
    ],
)
def test_bad_input_is_refused_at_once(
    cli: CommandLine, arguments: tuple[str, ...], expected: str
) -> None:
    """What makes no sense is one line, before anything is built."""
    assert expected in refused(cli, "compile", LIGHT, *arguments)
    assert not built(cli)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing.py", "there is no file missing.py"),
        ("none.py", "no config of k is left to try: all 2 are rejected"),
    ],
)
def test_what_is_not_there_is_named(cli: CommandLine, name: str, expected: str) -> None:
    """A file, or a config of its kernel that does not exist is named."""
    (cli.cwd / "none.py").write_text(
        "import tileyard\n"
        "@tileyard.kernel(space={'a': [1, 2]}, where=lambda a: a > 5)\n"
        "def k(a): ...\n"
    )
    assert expected in refused(cli, "compile", name, *TARGET)


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        ("cuda.bindings", "the target cuda needs the package cuda-bindings"),
        ("nvidia.cu13", "the target cuda needs the package nvidia.cu13"),
        ("tilelang", "the target cuda needs the package tilelang"),
    ],
)
def test_missing_packages_are_named(cli: CommandLine, hidden: str, expected: str) -> None:
    """Where a package of the extra is not installed, one line says what to install."""
    line = refused(cli, "compile", LIGHT, *TARGET, **_hide(cli, hidden))
    assert expected in line
    assert "pip install './tileyard[tilelang,cuda]'" in line


def test_another_tilelang_is_refused(cli: CommandLine) -> None:
    """Passes and headers of another release are not what this target knows."""
    folder = cli.cwd / "other" / "tilelang-9.9.9.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tilelang\nVersion: 9.9.9\n")
    line = refused(cli, "compile", LIGHT, *TARGET, PYTHONPATH=str(folder.parent))
    expected = "works with TileLang 0.1.15, found 9.9.9"
    assert expected in line


def built(cli: CommandLine) -> list[Path]:
    """The artifacts in a home's store."""
    return [*(cli.home / "objects" / "records").glob("build/**/*")]


def refused(cli: CommandLine, *arguments: str, **env: str) -> str:
    """The one line with which a command is refused."""
    done = cli.run(*arguments, **env)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2, done.stderr
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("tileyard: ")
    return lines[0]


def _hide(cli: CommandLine, package: str) -> dict[str, str]:
    """An environment in which Python finds no such package: as if it were not installed."""
    folder = cli.cwd / "hiding"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        textwrap.dedent(f"""
            import sys

            class Hide:
                def find_spec(self, name, path=None, target=None):
                    if name == {package!r} or name.startswith({package!r} + "."):
                        raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

            sys.meta_path.insert(0, Hide())
        """)
    )
    return {"PYTHONPATH": str(folder)}
