"""``tileyard regress``: two revisions of a project with real kernels, timed where they differ."""

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.conftest import ONE_CORE, ROOT, CommandLine
from tests.e2e.repositories import COPY, git

from tileyard.artifacts.collection import Keep, collect
from tileyard.artifacts.objects import ObjectStore

pytestmark = pytest.mark.slow

SCHEMA = ROOT / "docs" / "reference" / "regress.schema.json"
KERNELS = (
    """
import numpy as np
import tilelang.language as T
import tileyard
from project.amount import TIMES

def scaled(A):
    return A * np.float32(2.0) ** {power}

@tileyard.kernel(reference=scaled)
def scale(N=1 << 12):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_fragment((N,), "float32")
            T.copy(A, x)
            for _ in T.serial(TIMES):
                for i in T.Parallel(N):
                    x[i] = x[i] * 2.0
            T.copy(x, B)
    return main
"""
    + COPY
    + COPY.replace("{name}", "same")
)


def commit(folder: Path, times: int, name: str, power: str = "TIMES") -> None:
    """A revision of the project."""
    (folder / "project").mkdir(exist_ok=True)
    (folder / "project" / "__init__.py").touch()
    (folder / "project" / "amount.py").write_text(f"TIMES = {times}\n")
    kernels = KERNELS.replace("{power}", power).replace("{name}", name)
    (folder / "bench" / "kernels.py").write_text(kernels)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", name)


@pytest.fixture
def project(cli: CommandLine, tmp_path: Path) -> Path:
    """Three revisions: a kernel gets a hundred times the work, another a new name; then one goes wrong."""
    folder = tmp_path / "project"
    (folder / "bench").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, 1, "first")
    git(folder, "tag", "light")
    commit(folder, 100, "second")
    git(folder, "tag", "heavy")
    commit(folder, 100, "second", power="2")
    cli.cwd = folder
    cli.env |= {
        "PYTHONPATH": str(folder),
        "TILEYARD_HOME": str(tmp_path / "home"),
        "TILEYARD_LOCK_DIR": str(tmp_path / "locks"),
    }
    return folder


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """Of each kernel, by its name."""
    return {row["case"].partition("/")[0]: row["verdict"] for row in document["rows"]}


def test_what_is_slower_gone_or_wrong_is_named(cli: CommandLine, project: Path) -> None:
    """A row for every kernel of either side; equal binaries are not run; the repository is unchanged."""
    before = git(project, "status", "--porcelain"), git(project, "worktree", "list")
    done = cli.run("regress", "light", "heavy", "bench/kernels.py", "--json", *ONE_CORE)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert verdicts(document) == {
        "first": "missing",
        "scale": "regressed",
        "second": "new",
        "same": "unchanged",
    }
    gating = [row["case"].partition("/")[0] for row in document["rows"] if row["gates"]]
    assert gating == ["first", "scale", "second"]
    (slow,) = (row for row in document["rows"] if row["verdict"] == "regressed")
    assert slow["ratio"]["low"] > 2
    assert 0.5 < slow["control"]["ratio"] < 2
    trials = cli.run_json("trials", "--rows", "1000")
    timed = [trial for trial in trials if trial["measurement"]]
    assert {trial["kernel"] for trial in timed} == {"scale"}
    batches = {(one["lease"], one["target"], one["batch"]) for one in timed}
    assert len({place[:2] for place in batches}) == len(batches)  # no process times a kernel again
    revisions = {
        (one["case"], one["side"]): [point["revision"] for point in one["points"]]
        for one in json.loads(cli.run_here("history", "scale", "--json").stdout)["series"]
    }
    assert revisions == {
        (slow["case"], "base"): [git(project, "rev-parse", "light")],
        (slow["case"], "head"): [git(project, "rev-parse", "heavy")],
    }
    assert (git(project, "status", "--porcelain"), git(project, "worktree", "list")) == before
    assert list((cli.home / "tmp").iterdir()) == []


def test_a_wrong_result_gates_as_a_slower_one_does(cli: CommandLine, project: Path) -> None:
    """The working tree is a side, too; what is wrong there is said."""
    done = cli.run("regress", "light", ".", "bench/kernels.py::scale", "--each", "1s")
    assert done.returncode == 1, done.stderr
    assert "failed" in done.stdout
    assert "head: mismatch: B[" in done.stdout
    commit_id = git(project, "rev-parse", "--short=10", "HEAD")
    assert f"head: working tree, {commit_id}\n" in done.stdout


def test_figures_of_the_binary_are_beside_the_time(cli: CommandLine, project: Path) -> None:
    """What is faster passes; so does an allowed figure beyond its limit; arrays move in each process."""
    allow = project / "allow.toml"
    entry = 'verdicts = ["over_limit"]\nowner = "ana"\nreason = "shorter"\nuntil = 9999-12-31\n'
    allow.write_text(f'[[allow]]\ncases = "scale/*"\n{entry}')
    cli.env["TILEYARD_PLUGINS"] = "counting=counting_target:CountingTarget"
    cli.env["PYTHONPATH"] += f":{ROOT / 'tests' / 'e2e'}"
    asked = (
        "regress",
        "heavy",
        "light",
        "bench/kernels.py::scale",
        "--target",
        "counting",
        *ONE_CORE,
    )
    done = cli.run(*asked, "--fail-on", "registers:-0,spills:+0", "--allow", str(allow))
    assert done.returncode == 0, done.stderr
    assert "improved" in done.stdout
    assert "base against itself, as a control: no false alarm in 1 kernel" in done.stdout
    assert re.search(r"^    registers +\d+ -> \d+ +-", done.stdout, re.MULTILINE)
    assert "allowed registers:-0" in done.stdout
    assert "allowed until 9999-12-31 (ana: shorter)" in done.stdout
    assert "nothing fails the comparison" in done.stdout
    lines = (cli.home / "places").read_text().splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        process, _, places = line.partition(" ")
        found.setdefault(process, set()).add(places)
    assert len(lines) == 3 * len(found)
    # Base, head and control have theirs at the same places of a page: none has better ones.
    assert {len(places) for places in found.values()} == {1}
    for places in zip(*(line.split()[1:] for line in lines), strict=True):
        assert len(set(places)) > 1
        assert all(int(place) % 64 == 0 for place in places)


def test_a_collection_of_garbage_leaves_what_is_compared(cli: CommandLine, project: Path) -> None:
    """Whenever it comes; afterwards the checkouts go, too."""
    ObjectStore(cli.home / "objects").put_bytes(b"of an earlier run")
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(cli.run, "regress", "light", "heavy", "bench/kernels.py::same")
        while not run.done():
            collect(cli.home, Keep(max_bytes=0))
            wait([run], timeout=0.02)  # the run needs a core, too
    done = run.result()
    assert done.returncode == 0, done.stderr
    assert "1 kernel: 1 unchanged" in done.stdout
    collect(cli.home, Keep(max_bytes=0))
    assert list((cli.home / "sides").iterdir()) == []


def test_bad_input_is_one_line(cli: CommandLine, project: Path) -> None:
    """With exit status 2, and before anything is built."""
    (project / "bench" / "notes").write_text("not committed")
    for words, expected in {
        ("nowhere", ".", "bench/kernels.py"): "nowhere is neither a git revision of",
        ("light", ".", "bench/gone.py"): "neither side has a file bench/gone.py",
        ("light", ".", "/etc/hosts"): "/etc/hosts is not in the project",
        ("light", ".", "bench/kernels.py", "--margin", "2"): "'2' is not a share above 0 and below",
        ("light", ".", "bench/kernels.py", "--clean"): "--clean: working tree, ",
    }.items():
        refused = cli.run_here("regress", *words)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), words
        assert expected in refused.stderr
    done = cli.run("regress", "light", ".", "bench/kernels.py::gone")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "no kernel 'gone'" in done.stderr


@pytest.mark.sweep(0)  # programs show it by default: test_regress_suites.py
def test_ctrl_c_leaves_nothing_half_done(cli: CommandLine, project: Path) -> None:
    """What runs is finished, and no folder of this run stays."""
    assert project.is_dir()
    process = cli.start("regress", "light", "heavy", "bench/kernels.py", "--margin", "0.01%")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("regress light")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert list((cli.home / "tmp").iterdir()) == []
    assert not list((cli.home / "sides").glob("tmp-*"))
