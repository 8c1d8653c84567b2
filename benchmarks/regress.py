"""How often ``tileyard regress`` errs, and how often it finds a planted slow-down; see ``--help``.

A made project has ten kernels that repeat their work so many times; head repeats it a few percent more often,
or only adds another number (then nothing may be found). Beside that stands what one number for each side
says, if the base of a run is compared with the head of the next one: all old times before all new ones, as
bots measure.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tileyard.show.values import parse_share

WORK = 200
BODIES = {
    "chain": ("float32", "x[i, j] * 0.999 + TAG"),
    "half": ("float16", "x[i, j] * T.float16(0.5) + T.float16(TAG)"),
    "divide": ("float32", "TAG / (1.5 + x[i, j] * x[i, j])"),
    "exponent": ("float32", "T.exp(-x[i, j] * x[i, j]) * TAG"),
    "root": ("float32", "T.sqrt(x[i, j] * x[i, j] + TAG)"),
    "largest": ("float32", "T.max(x[i, j] * 0.9, TAG - x[i, j])"),
    "whole": ("int32", "x[i, j] * 3 + (x[i, j] >> 2) + T.int32(8 * TAG + 1)"),
    "choose": ("float32", "T.if_then_else(x[i, j] > TAG, x[i, j] * 0.5, x[i, j] + TAG)"),
    "double": ("float64", "x[i, j] * 0.999 + TAG"),
    "small": ("int16", "x[i, j] * T.int16(5) + T.int16(8 * TAG + 1)"),
}
"""What is done to each element, by the kernel's name."""
KERNEL = """
@tileyard.kernel
def {name}(M=256):
    @T.prim_func
    def main(A: T.Tensor((M, 128), "{dtype}"), B: T.Tensor((M, 128), "{dtype}")):
        with T.Kernel(T.ceildiv(M, 64), threads=128) as bx:
            x = T.alloc_fragment((64, 128), "{dtype}")
            T.copy(A[bx * 64, 0], x)
            for _ in T.serial(WORK):
                for i, j in T.Parallel(64, 128):
                    x[i, j] = {body}
            T.copy(x, B[bx * 64, 0])
    return main
"""


def main() -> None:
    """Make the project, compare, and print a line for each slow-down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200, help="comparisons without a difference")
    parser.add_argument("--planted", type=int, default=30, help="comparisons for each slow-down")
    parser.add_argument("--each", default="10s", help="the most time for one comparison")
    parser.add_argument("--margin", default="1%")
    parser.add_argument("--device", help="on this one and not on all cores, such as core:0")
    parser.add_argument("--busy", action="store_true", help="keep one core busy meanwhile")
    parser.add_argument("--out", help="append every row as JSON to this file")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, keep_busy(asked.busy):
        project = make_project(Path(scratch))
        for percent in (0, 3, 5, 10):
            count = asked.planted if percent else asked.rows
            if not count:
                continue
            began, rows = time.monotonic(), []
            while len(rows) < count:
                run = compare(project, percent, asked)
                rows += run
                if asked.out:
                    known = {"planted": percent, "busy": asked.busy}
                    with Path(asked.out).open("a") as file:
                        file.writelines(json.dumps({**known, **row}) + "\n" for row in run)
            seconds = (time.monotonic() - began) / len(rows)
            print(describe(percent, rows, seconds, parse_share(asked.margin)), flush=True)


@contextlib.contextmanager
def keep_busy(wanted: bool) -> Iterator[None]:
    """One core has other work meanwhile."""
    if not wanted:
        yield
        return
    core = max(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield
        finally:
            process.kill()


def make_project(folder: Path) -> Path:
    """A repository with a revision for each slow-down, and one that is compared with."""

    def git(*words: str) -> None:
        name = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
        subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)

    kernels = [
        KERNEL.format(name=name, dtype=dtype, body=body) for name, (dtype, body) in BODIES.items()
    ]
    head = "import tilelang.language as T\nimport tileyard\nfrom amount import TAG, WORK\n"
    (folder / "kernels.py").write_text(head + "".join(kernels))
    git("init", "-q")
    for name, percent, tag in (("base", 0, 1.25), *((f"p{p}", p, 1.5) for p in (0, 3, 5, 10))):
        work = WORK * (100 + percent) // 100
        (folder / "amount.py").write_text(f"TAG, WORK = {tag}, {work}\n")
        git("add", ".")
        git("commit", "-q", "-m", name)
        git("tag", name)
    return folder


def compare(project: Path, percent: int, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one run."""
    options = ["--margin", asked.margin, "--each", asked.each, "--json"]
    options += ["--devices", asked.device] if asked.device else []
    command = [sys.executable, "-m", "tileyard", "regress", "base", f"p{percent}", "kernels.py"]
    env = {**os.environ, "TILEYARD_HOME": str(project.parent / f"{project.name}-home")}
    done = subprocess.run(
        [*command, *options], cwd=project, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode > 1:
        raise SystemExit(done.stderr)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def is_beyond(ratio: dict[str, Any], margin: float) -> bool:
    """Whether a ratio's whole interval is."""
    known = ratio["low"] is not None
    return known and (ratio["low"] > 1 + margin or ratio["high"] < 1 / (1 + margin))


def describe(percent: int, rows: list[dict[str, Any]], seconds: float, margin: float) -> str:
    """What was found, how long it took, and what one number for each side would have said."""
    count = len(rows)
    changed = [row for row in rows if row["verdict"] in ("regressed", "improved")]
    ordered = sorted(
        rows, key=lambda row: row["case"]
    )  # stable: the runs of a case follow each other
    bots = [
        after["head"] / before["base"]
        for before, after in itertools.pairwise(ordered)
        if before["case"] == after["case"] and before["base"] and after["head"]
    ]
    ratios = [row["ratio"]["ratio"] for row in rows if row["ratio"]]
    alarms = sum(is_beyond(row["control"], margin) for row in rows if row["control"])
    elsewhere = [
        math.log(one / row["ratio"]["ratio"])
        for row in rows
        if row["ratio"]
        for one in row["shifted"]
    ]
    moved = (
        f"code elsewhere differs by {100 * statistics.stdev(elsewhere):.1f} %, "
        if elsewhere
        else ""
    )
    verdicts = {
        one: sum(row["verdict"] == one for row in rows)
        for one in sorted({r["verdict"] for r in rows})
    }
    return (
        f"planted {percent} %: {len(changed)} of {count} called changed, {seconds:.1f} s each, "
        f"median ratio {statistics.median(ratios):.4f}, {verdicts}, {alarms} false alarms of the "
        f"control; {moved}one number for each side: "
        f"{sum(abs(one - 1) > 0.01 for one in bots)} of {len(bots)} beyond 1 %, "
        f"{sum(one > 1 / 0.9 for one in bots)} above 1/0.9, "
        f"from {100 * (min(bots, default=1) - 1):+.1f} to {100 * (max(bots, default=1) - 1):+.1f} %"
    )


if __name__ == "__main__":
    main()
