"""``tileyard compile`` for NVIDIA's GPUs on a machine that has none: blame, and bad input."""

import json
import subprocess
import textwrap
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Blamed:
    """A place where configs were built that end in every way."""

    cli: CommandLine
    done: subprocess.CompletedProcess[str]
    notes: list[str]
    by_fault: dict[str, dict[str, Any]] = field(default_factory=dict)

    def list_each(self, name: str) -> dict[str, Any]:
        """A field of each config, by its fault."""
        return {fault: one[name] for fault, one in self.by_fault.items()}


@pytest.fixture(scope="module")
def blamed(tmp_path_factory: pytest.TempPathFactory, gpu_caches: Path) -> Blamed:
    """Configs of one request. All but the healthy one fail: two kill the worker that they share."""
    cli = make_place(tmp_path_factory.mktemp("blamed"), gpu_caches)
    # The quick end of all comes first.
    faults = "fault=memory,none,lowering,shared,static,threads,source,endless"
    command = ("compile", FAULTS, *TARGET, "--config", faults, "--config", "block=64")
    limits = ("--build-limit", "10s", "--compile-workers", "1", "--group-size", "3")
    done = cli.run(*command, *limits, "-o", "well.tyb", "--json")
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    for one in result["configs"]:
        one["log"] = (cli.home / one["log"]).read_text() if one["log"] else ""
    by_fault = {one["config"]["fault"]: one for one in result["configs"]}
    return Blamed(cli, done, result["notes"], by_fault)


def test_each_culprit_has_its_own_outcome(blamed: Blamed) -> None:
    """What is healthy is built; what is not ends as what it is, and the command with exit status 1."""
    expected = {
        "none": "passed",
        "lowering": "compile_error",
        "shared": "compile_error",
        "static": "compile_error",
        "threads": "compile_error",
        "source": "compile_error",
        "endless": "timeout",
        "memory": "out_of_memory",
    }
    assert blamed.list_each("outcome") == expected
    assert blamed.done.returncode == 1, blamed.done.stderr


def test_each_culprit_has_its_own_message(blamed: Blamed) -> None:
    """TileLang's reason with the user's line, NVRTC's own words, the limit that was passed."""
    messages = blamed.list_each("message")
    lines = Path(FAULTS).read_text(encoding="utf-8").splitlines()
    expected = 1 + next(i for i, line in enumerate(lines) if "tile = T.alloc_fragment" in line)
    assert messages["lowering"].startswith(f"{FAULTS}:{expected}: TileLang: ")
    assert "only fragment[0] access is allowed" in messages["lowering"].lower()
    assert 'error: identifier "nowhere" is undefined' in messages["source"]
    assert "build limit of 10 s" in messages["endless"]
    assert "it could not allocate within its limit of " in messages["memory"]
    assert messages["none"] == ""


def test_what_no_gpu_has_room_for_is_known_before_anything_runs(blamed: Blamed) -> None:
    """By its launch, so that NVRTC is not asked, or by its binary; and this is known next time."""
    expected = {
        "shared": "needs 256 KiB of shared memory per block; sm_90a allows 227 KiB",
        "static": "needs 240 KiB of shared memory per block; sm_90a allows 227 KiB",
        "threads": "needs 2048 threads per block; sm_90a allows 1024",
    }
    exceeded = blamed.list_each("exceeds")
    limits = dict.fromkeys(("shared", "static"), "shared memory") | {"threads": "threads"}
    assert {fault: limit for fault, limit in exceeded.items() if limit} == limits
    assert {fault: blamed.by_fault[fault]["message"] for fault in expected} == expected
    assert {fault for fault in expected if "ptxas" in blamed.by_fault[fault]["log"]} == {"static"}
    only = ("--config", f"fault={','.join(expected)}", "--config", "block=64", "-o", "none.tyb")
    done = blamed.cli.run("compile", FAULTS, *TARGET, *only)
    lines = [f"too large  fault={fault} block=64: {why}" for fault, why in expected.items()]
    found = [line.partition("  log: ")[0] for line in done.stdout.splitlines()]
    assert [line for line in found if line in lines] == lines
    *_, summary, last = done.stdout.splitlines()
    assert summary.endswith(
        ": 2 too large (shared memory), 1 too large (threads); 3 known from earlier runs"
    )
    assert last == f"nothing could be built: {blamed.cli.cwd}/none.tyb was not written"
    assert (done.returncode, done.stderr) == (1, "")


def test_logs_are_each_configs_own(blamed: Blamed) -> None:
    """What the compilers said of one config is in its log, and in no other's."""
    logs = blamed.list_each("log")
    expected = {"source"}
    assert {fault for fault, log in logs.items() if "nowhere" in log} == expected
    assert "Traceback" in logs["lowering"]
    assert "LLVM ERROR: out of memory" in logs["memory"]


def test_a_bundle_that_nobody_can_check_is_told(blamed: Blamed) -> None:
    """A kernel without a reference gives a bundle without results to compare with, and one line says so."""
    expected = "add_one has no reference: results of this bundle cannot be checked"
    assert any(note.startswith(expected) for note in blamed.notes), blamed.notes


@pytest.mark.sweep(0)  # by default: compile of a space
def test_tuning_says_which_configs_another_target_builds(blamed: Blamed) -> None:
    """With the reason of those it does not; each can still be the best here. What was built is known then."""
    asked = ("tune", FAULTS, "--config", "fault=none,lowering", "--config", "block=64")
    both = ("--also-build", "cuda:sm_90a", "--also-build", "cpu:x86-64-v2")
    done = blamed.cli.run(*asked, *both)
    lines = done.stdout.splitlines()
    reasons = [line for line in lines if line.startswith("cuda:sm_90a: ")]
    assert done.returncode == 0, done.stderr
    assert "1 of 2 configs build for cuda:sm_90a" in lines
    assert "2 of 2 configs build for cpu:x86-64-v2" in lines
    assert [line.split()[1:3] for line in reasons] == [["compile_error", "fault=lowering"]]
    assert "only fragment[0] access is allowed" in reasons[0].lower()
    assert any(line.endswith(": 2 unchecked") for line in lines)
    assert lines[-1].startswith("best: ")
    known = [
        [(one["outcome"], one["reused"]) for one in target["configs"]]
        for target in blamed.cli.run_json(*asked, *both)["also_built"]
    ]
    assert known == [[("passed", True), ("compile_error", True)], [("passed", True)] * 2]


def test_a_text_that_a_target_does_not_have_is_refused(blamed: Blamed) -> None:
    """One line says which there are; a config that is built already is not built again."""
    config = ("--config", "fault=none", "--config", "block=64")
    done = blamed.cli.run("compile", FAULTS, *TARGET, *config, "--emit", "c")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no kernel.c was generated for cuda:sm_90a (there is: program, cuda)" in done.stderr


@pytest.mark.sweep(1)
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
    assert expected in refused_by_engine(cli, "tune", LIGHT, "--also-build", target)


@pytest.mark.skipif(has_driver(), reason="there is an NVIDIA driver")
def test_nothing_is_tuned_where_no_gpu_is(cli: CommandLine) -> None:
    """A run that needs a GPU is refused before anything is elaborated or built."""
    line = refused_by_engine(cli, "tune", LIGHT, *TARGET)
    expected = "there is no device 'cuda'"
    assert expected in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--target", "cuda:sm_9"), "there is no architecture 'sm_9'"),
        (("--target", "cuda"), "the target cuda needs an architecture"),
        ((*TARGET, "--commit", "c0ffee"), "--commit has no effect without a bundle"),
        ((*TARGET, "-o", "nowhere/third.tyb"), "there is no folder nowhere"),
        ((*TARGET, "-o", "."), "it is a folder"),
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
    ("arguments", "expected"),
    [
        (("--target", "cuda:sm_79"), ("does not compile for sm_79", "sm_90, sm_90a, ")),
        ((*TARGET, "--arg", "Q=3"), ("add_one has no argument 'Q'",)),
        ((*TARGET, "--reference", "nothing", "-o", "third.tyb"), ("nothing",)),
    ],
)
def test_bad_input_that_only_the_engine_knows_is_refused(
    cli: CommandLine, arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """What NVRTC cannot do and what the kernel does not have is one line, before anything is built."""
    line = refused_by_engine(cli, "compile", LIGHT, *arguments)
    assert [part for part in expected if part not in line] == []
    assert not built(cli)


def test_what_is_not_there_is_named(cli: CommandLine) -> None:
    """A file, or a config of its kernel that does not exist is named."""
    (cli.cwd / "none.py").write_text(
        "import tileyard\n"
        "@tileyard.kernel(space={'a': [1, 2]}, where=lambda a: a > 5)\n"
        "def k(a): ...\n"
    )
    expected = "no config of k is left to try: all 2 are rejected"
    assert "there is no file missing.py" in refused(cli, "compile", "missing.py", *TARGET)
    assert expected in refused_by_engine(cli, "compile", "none.py", *TARGET)


@pytest.mark.sweep(1)
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
    line = refused_by_engine(cli, "compile", LIGHT, *TARGET, **_hide(cli, hidden))
    assert expected in line
    assert "pip install './tileyard[tilelang,cuda]'" in line


def test_another_tilelang_is_refused(cli: CommandLine) -> None:
    """Passes and headers of another release are not what this target knows."""
    folder = cli.cwd / "other" / "tilelang-9.9.9.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tilelang\nVersion: 9.9.9\n")
    line = refused_by_engine(cli, "compile", LIGHT, *TARGET, PYTHONPATH=str(folder.parent))
    expected = "works with TileLang 0.1.15, found 9.9.9"
    assert expected in line


def built(cli: CommandLine) -> list[Path]:
    """The artifacts in a home's store."""
    return [*(cli.home / "objects" / "records").glob("build/**/*")]


def refused(cli: CommandLine, *arguments: str) -> str:
    """The one line with which a command is refused before an engine starts."""
    return _read_line(cli.run_here(*arguments))


def refused_by_engine(cli: CommandLine, *arguments: str, **env: str) -> str:
    """The one line with which a command is refused."""
    return _read_line(cli.run(*arguments, **env))


def _read_line(done: subprocess.CompletedProcess[str]) -> str:
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
