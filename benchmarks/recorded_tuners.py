"""TileLang's AutoTuner and ours on the same cardless builds for sm_90a, with recorded latencies for runs.

    python benchmarks/recorded_tuners.py [--configs 12] [--launches 4000] [--only NAME]
    python benchmarks/recorded_tuners.py --files [--gpu]

A study is a process with caches of its own; the two take turns. Builds are real, and a device is a thread or
process that waits for as long as the launches that it is asked for took on a GPU. The ideal is what cannot be
undercut: all building shared by all cores, or all running shared by all devices, whichever is longer; both
are the sums that the study itself found.

``--files`` has each file of ``upstream/`` tuned by both, and compares how many configs were timed and which
one won. With ``--gpu`` the runs are real, on the GPU of this host, and what TileLang chose is rated by the
times that ours found.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CHAIN = Path(__file__).with_name("recorded_chain.py")
PLUGIN = "cuda=tests.e2e.recorded_target:RecordedTarget"
DEVICE = """[[device]]
name = "cuda:{number}"
id = "recorded-{number}"
identity = "recorded"
"""
NOTHING = {
    "use_pipeline": False,
    "benchmark_multi_gpu": False,
    "enable_grouped_compile": True,
    "group_compile_size": 1,
}
"""What an experiment leaves out: overlap, further devices, groups."""
OVERLAP = {"use_pipeline": True}
DEVICES = {"benchmark_multi_gpu": True}
GROUPS = {"enable_grouped_compile": True, "group_compile_size": 2}
EXPERIMENTS = {
    "nothing": (1, NOTHING),
    "overlap": (1, NOTHING | OVERLAP),
    "2 devices": (2, NOTHING | DEVICES),
    "groups": (1, NOTHING | GROUPS),
    "all, 2 devices": (2, NOTHING | OVERLAP | DEVICES | GROUPS),
    "all, 1 device": (1, NOTHING | OVERLAP | GROUPS),
    "all, 4 devices": (4, NOTHING | OVERLAP | DEVICES | GROUPS),
}


def run(which: str, devices: int, options: dict[str, Any]) -> dict[str, Any]:
    """One study by this tuner, in a process that knows nothing."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        recorded = {} if options.get("real") else {"TILEYARD_PLUGINS": PLUGIN}
        if recorded:
            declared = "".join(DEVICE.format(number=number) for number in range(devices))
            (home / "devices.toml").write_text(declared)
        done = subprocess.run(
            [sys.executable, str(CHAIN), which, json.dumps({"devices": devices, **options})],
            env={
                **os.environ,
                "TILEYARD_HOME": str(home),
                "TILEYARD_LOCK_DIR": f"{folder}/locks",
                **recorded,
                "PYTHONPATH": f"{CHAIN.parent.parent}:{os.environ.get('PYTHONPATH', '')}",
                "TILELANG_CACHE_DIR": f"{folder}/cache",
            },
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare_files(*, real: bool) -> None:
    """A line for each file."""
    for file in sorted(CHAIN.with_name("upstream").glob("*.py")):
        options = {"file": str(file), "real": real}
        theirs, ours = (run(which, 1, options) for which in ("tilelang", "tileyard"))
        same = "the same winner"
        if theirs["config"] != ours["config"]:
            chosen, best = (
                ours["all_ns"][json.dumps(one["config"], sort_keys=True)] for one in (theirs, ours)
            )
            same = f"ANOTHER winner ({theirs['config']}, {chosen / best:.4f} x ours)"
        print(
            f"{file.stem:13} TileLang: {theirs['timed']} configs, {theirs['seconds']:.1f} s, "
            f"{theirs['latency']:.4f} ms; "
            f"Tileyard: {ours['timed']} configs, {ours['seconds']:.1f} s, {ours['latency']:.4f} "
            f"ms; {same}: {ours['config']}",
            flush=True,
        )


def main() -> None:
    """A line for each study, and whether both found the same winner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, choices=range(2, 145), default=12, metavar="N")
    parser.add_argument("--launches", type=int, default=4000)
    parser.add_argument("--only", choices=tuple(EXPERIMENTS))
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    given = parser.parse_args()
    if given.files:
        compare_files(real=given.gpu)
        return
    cores = len(os.sched_getaffinity(0))
    first: dict[str, float] = {}
    for name, (devices, options) in EXPERIMENTS.items():
        if given.only not in (None, name):
            continue
        counts = {"warmup": given.launches // 10, "rep": given.launches}
        winners = []
        for which in ("tilelang", "tileyard"):
            found = run(which, devices, {"configs": given.configs, "run": options | counts})
            first.setdefault(which, found["seconds"])
            winners.append(found["config"])
            ideal_s = max(found["built"] / cores, found["ran"] / devices)
            print(
                f"{name:15} {which}: {found['seconds']:6.1f} s, "
                f"{first[which] / found['seconds']:.2f} x nothing; "
                f"building {found['built'] / cores:.1f} s a core, running "
                f"{found['ran'] / devices:.1f} s a device, "
                f"waiting {found['seconds'] - ideal_s:.1f} s, {found['seconds'] / ideal_s:.2f} x "
                f"ideal; {found['latency']:.4f} ms",
                flush=True,
            )
        if winners[0] != winners[1]:
            print(f"{name}: TileLang's winner is {winners[0]}, ours {winners[1]}")


if __name__ == "__main__":
    main()
