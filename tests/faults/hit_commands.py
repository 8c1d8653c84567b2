"""Commands to be hit: what each is given, how its cases ended, and with which status it should end.

One module because a command is its row in one table, and what that row refers to.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

FAULTS = ("infra_error", "queue_timeout")
WELL = ("passed", "unchecked", "skipped")
DISTURBED = "disturbed"
"""Among the outcomes of a study whose finals other work disturbed: it names no best config."""
WRONG = "t3/c"
"""The case of the suite that ends as a mismatch."""

SUITE = """
name = "storm"
limits = { golden_s = 5, build_s = 5, run_s = 5 }
build = { argv = ["sh", "{suite}/build.sh", "{testcase}", "{out}"], inputs = ["build.sh", "p.c"] }
golden = { argv = ["sh", "{suite}/golden.sh", "{testcase}/{case}", "{out}"], inputs = ["golden.sh"] }
run = ["sh", "{suite}/run.sh", "{testcase}/{case}", "{build}/p"]
check = ["sh", "{suite}/check.sh", "{testcase}/{case}"]
"""
SCRIPTS = {
    "build.sh": 'cc -O2 -DNAME="\\"$1\\"" -o "$2/p" "$(dirname "$0")/p.c"\n',
    "golden.sh": f'sleep 0.05\n[ "$1" = {WRONG} ] && echo no > "$2/g" || echo "$1" > "$2/g"\n',
    "run.sh": 'sleep 0.1\nexec "$2" "$1" > output\n',
    "check.sh": "sleep 0.05\ncmp -s g output || exit 2\n",
    "p.c": """
        #include <stdio.h>
        #include <string.h>
        int main(int count, char **words) {
            printf("%s/%s\\n", NAME, strchr(words[1], '/') + 1);
            return count != 2;
        }
    """,
}


def write_suite(folder: Path) -> None:
    """Write the suite of programs into a folder."""
    folder.mkdir()
    cases = ", ".join(f'{{ name = "{name}" }}' for name in "abc")
    testcases = [f'[[testcase]]\nname = "t{number}"\ncase = [{cases}]\n' for number in range(4)]
    (folder / "suite.toml").write_text(SUITE + "".join(testcases))
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)


KERNEL = """
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def scale(N, block=32):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * 3.0

    return main


def reference(X):
    return X * 3
"""
TESTS = """
import pathlib
import subprocess

import pytest

SUITE = pathlib.Path(__file__).parent.parent / "suite"


def build(out, name):
    subprocess.run(["sh", str(SUITE / "build.sh"), name, str(out)], check=True)
    return {"binary": str(out / "p")}


@pytest.mark.tile_compile(function=build, limit="5s")
@pytest.mark.tile_limit("5s")
@pytest.mark.parametrize("case", "abc")
@pytest.mark.parametrize("name", ["t0", "t1"])
def test_program(name, case, tile_built, tile_device, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = f"{name}/{case}"
    with tile_device():
        subprocess.run(["sh", str(SUITE / "run.sh"), said, tile_built.result["binary"]], check=True)
    subprocess.run(["sh", str(SUITE / "golden.sh"), said, "."], check=True)
    subprocess.run(["sh", str(SUITE / "check.sh"), said], check=True)
"""
KERNEL_TESTS = """
import numpy as np
import pytest
from kernel import scale


@pytest.mark.tile_kernel(kernel=scale)
@pytest.mark.tile_limit("10s")
@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize("N", [256])
def test_scale(N, block, tile_kernel, tile_device):
    x = np.ones(N, "float32")
    with tile_device():
        assert (tile_kernel(x) == 3).all()
"""
DEVICE = """
[[device]]
name = "npu:0"
id = "0000:c1:00.0"
probe = ["true"]
"""


def write_kernel(folder: Path) -> None:
    """Write a file with a small kernel."""
    (folder / "kernel.py").write_text(KERNEL)


def write_device(folder: Path) -> None:
    """Write the suite, and the declaration of a device that it can run on."""
    write_suite(folder / "suite")
    (folder / "etc").mkdir()
    (folder / "etc" / "devices.toml").write_text(DEVICE)


def write_tests(folder: Path) -> None:
    """Write tests for pytest that run the programs of the suite on a device."""
    write_device(folder)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_programs.py").write_text(TESTS)


def write_kernel_tests(folder: Path) -> None:
    """Write tests for pytest that each have a kernel of their own."""
    (folder / "tests").mkdir()
    write_kernel(folder / "tests")
    (folder / "tests" / "test_kernels.py").write_text(KERNEL_TESTS)


def read_verdicts(place: Path) -> dict[str, str]:
    """Outcome by case, of what a command has printed with ``--json``."""
    printed = json.loads((place / "stdout").read_text())
    return {verdict["case"]: verdict["outcome"] for verdict in printed["verdicts"]}


def read_bundled(place: Path) -> dict[str, str]:
    """Outcome by case, where the bundle was written, too."""
    outcomes = read_verdicts(place)
    is_whole = "skipped" not in outcomes.values() or (place / "suite.tyb").stat().st_size > 0
    return outcomes if is_whole else {}


def read_trials(place: Path) -> dict[str, str]:
    """Worst outcome by config, and whether a best one was found, or would be but for other work."""
    printed = json.loads((place / "stdout").read_text())
    is_found = printed["best"] or printed["disturbed"]
    found: dict[str, str] = {"best": "passed" if is_found else "missing"}
    if printed["disturbed"]:
        found[DISTURBED] = "passed"
    for trial in printed["trials"]:
        config = "block/" + "-".join(str(value) for value in trial["config"].values())
        if found.get(config, "passed") in WELL:
            found[config] = trial["outcome"]
    return found


def read_tests(place: Path) -> dict[str, str]:
    """Outcome by test."""
    report = json.loads((place / "report.json").read_text())
    ids = [(test["test"].rpartition("[")[2][:-1], test["outcome"]) for test in report["tests"]]
    return {"/".join(name.split("-")): outcome for name, outcome in ids}


def status_of_test(outcomes: Mapping[str, str]) -> int:
    """As the table of exit status has it."""
    bad = [outcome for outcome in outcomes.values() if outcome not in WELL]
    if not bad:
        return 0
    return 3 if all(outcome in FAULTS for outcome in bad) else 1


def status_of_bundle(outcomes: Mapping[str, str]) -> int:
    """As the table of exit status has it."""
    if outcomes and not any(outcome in WELL for outcome in outcomes.values()):
        return 2
    return status_of_test(outcomes)


def status_of_tune(outcomes: Mapping[str, str]) -> int:
    """As the table of exit status has it."""
    configs = {outcome for case, outcome in outcomes.items() if case != "best"}
    if outcomes.get("best") == "passed":
        return 3 if DISTURBED in outcomes else 0
    return 3 if configs and configs <= set(FAULTS) else 1


def status_of_pytest(outcomes: Mapping[str, str]) -> int:
    """As pytest has it."""
    return int(any(outcome != "passed" for outcome in outcomes.values()))


@dataclass(frozen=True, kw_only=True)
class Command:
    """A verb. ``cells`` are the kinds of its processes and the states of the run to hit each in. ``setup``
    makes what all its runs share; ``read`` takes outcomes by case from the folder of a run. ``weight`` is its
    share of the hits; one that ``is_long`` takes part where there are many. With ``is_known`` its homes know
    what an author answers, but for hits on that. With ``keeps_outcomes`` its next run takes outcomes from the
    store; with ``has_own_scratch`` its programs choose where their temporary files are, which a compiler that
    is killed leaves.
    """

    argv: tuple[str, ...]
    cells: Mapping[str, tuple[str, ...]]
    setup: Callable[[Path], None]
    read: Callable[[Path], dict[str, str]]
    status: Callable[[Mapping[str, str]], int]
    weight: int
    is_known: bool = False
    keeps_outcomes: bool = False
    is_long: bool = False
    has_own_scratch: bool = False


TILEYARD = (sys.executable, "-m", "tileyard")
PYTEST = (
    *(sys.executable, "-m", "pytest", "--tileyard", "--tileyard-report={place}/report.json"),
    *("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:hypothesispytest", "-q", "tests"),
    *("--tileyard-queue-limit=30s", "--tileyard-build-limit=10s"),
)
THROUGHOUT = ("starting", "building", "golden", "running", "judging", "ending")
PHASES = ("starting", "building", "golden", "idle", "running", "judging", "ending")
BUILDS = {
    "keeper of compiler": PHASES,
    "compiler": PHASES,
    "fork server of compiler": PHASES[1:],
    "build program": ("building",),
    "compiler child": ("building",),
}
STEPS = {
    "keeper of step_host": PHASES,
    "step_host": PHASES,
    "fork server of step_host": PHASES,
    "keeper of a step": ("building", "golden", "running", "judging"),
    "golden program": ("golden",),
    "child of golden program": ("golden",),
    "run program": ("running",),
    "child of run program": ("running",),
    "check program": ("judging",),
    "child of check program": ("judging",),
}
BUNDLED = ("starting", "building", "golden", "idle", "ending")
TUNED = ("building", "leased", "running", "ending")
COMMANDS = {
    "test": Command(
        argv=(*TILEYARD, "test", "suite", "--json"),
        cells={"client": THROUGHOUT, "engine": THROUGHOUT, **BUILDS, **STEPS},
        setup=lambda shared: write_suite(shared / "suite"),
        read=read_verdicts,
        status=status_of_test,
        weight=9,
    ),
    "device": Command(
        argv=(*TILEYARD, "test", "suite", "--devices", "npu:0", "--json"),
        cells={
            "client": (*THROUGHOUT, "leased"),
            "engine": (*THROUGHOUT, "leased"),
            "keeper of runner": ("idle", "leased", "running", "judging"),
            "runner": ("golden", "leased", "running", "judging"),
            "fork server of runner": ("leased", "running", "judging"),
            **STEPS,
        },
        setup=write_device,
        read=read_verdicts,
        status=status_of_test,
        weight=6,
    ),
    "tune": Command(
        argv=(
            *(*TILEYARD, "tune", "kernel.py::scale", "--arg", "N=256"),
            *(
                "--config",
                "block=16,32,64",
                "--reference",
                "reference",
                "--build-limit",
                "5s",
                "--run-limit",
                "3s",
                "--json",
            ),
        ),
        cells={
            "client": ("starting", *TUNED),
            "engine": ("starting", *TUNED),
            "keeper of author": ("starting", *TUNED),
            "author": ("starting", *TUNED),
            "keeper of compiler": ("starting", "building", "idle", "running"),
            "compiler": ("starting", "building", "idle", "running"),
            "compiler child": ("building",),
            "keeper of runner": ("idle", "leased", "running"),
            "runner": ("idle", "leased", "running"),
            "keeper of judge": ("idle", "leased", "running"),
            "judge": ("idle", "leased", "running"),
        },
        setup=write_kernel,
        read=read_trials,
        status=status_of_tune,
        weight=9,
        is_long=True,
        is_known=True,
        keeps_outcomes=True,
    ),
    "pytest": Command(
        argv=(*PYTEST, "--tileyard-device=npu:0"),
        cells={
            "client": ("starting", "building", "running", "judging", "idle", "ending"),
            "copy": ("building", "running", "judging", "idle"),
            "build program": ("building",),
            "compiler child": ("building",),
            "run program": ("running",),
            "check program": ("judging",),
            "keeper of a program": ("running",),
            "sh": ("running",),
        },
        has_own_scratch=True,
        setup=write_tests,
        read=read_tests,
        status=status_of_pytest,
        weight=4,
        is_long=True,
    ),
    "kernels": Command(
        argv=PYTEST,
        cells={
            "client": ("starting", "building", "idle"),
            "copy": ("starting", "idle"),
            "keeper of compiler": ("starting", "building", "idle"),
            "compiler": ("starting", "building", "idle"),
            "compiler child": ("building",),
            "keeper of a program": ("idle",),
        },
        setup=write_kernel_tests,
        read=read_tests,
        status=status_of_pytest,
        weight=2,
        is_long=True,
    ),
    "bundle": Command(
        argv=(*TILEYARD, "bundle", "suite", "-o", "{place}/suite.tyb", "--json"),
        cells={
            "client": BUNDLED,
            "engine": BUNDLED,
            **{
                kind: tuple(state for state in states if state in BUNDLED)
                for kind, states in BUILDS.items()
            },
            "step_host": BUNDLED,
            "golden program": ("golden",),
        },
        setup=lambda shared: write_suite(shared / "suite"),
        read=read_bundled,
        status=status_of_bundle,
        weight=3,
    ),
}
