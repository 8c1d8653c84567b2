"""``make gpu-check``: runs artifacts built elsewhere on this host's GPU, and writes down what it saw.

``python check.py FOLDER``; FOLDER is what ``make gpu-artifacts`` built. Needs torch, numpy, cuda-bindings and
msgspec, and nothing else; ``tune --from`` needs Tileyard's own requirements, too. Each kernel runs in a
process of its own with a time limit; after each of the two that must fail, one that is well runs again. Where
there is no GPU nothing is run.

``--stubbed OUT`` is for trying this program itself with the driver library stubbed: results, which
nothing computes then, are not looked at, and what would be written to docs/ is written to OUT.
"""

import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CHILD = HERE / "check_child.py"
LIMIT_S, FAULT_LIMIT_S = 300.0, 15.0
WELL_AGAIN = "add"
CHAIN, CHAIN_ARCH = ROOT / "benchmarks/upstream/gemm.py", "sm_90a"
PRINT = """
import json
result = tune()
print(json.dumps({"config": result.config, "latency": result.latency}))
"""
DRIVER_SIGNS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")


def main(folder: Path, out: Path | None) -> int:
    """Run all and say what became of it; 1 if anything did not end as it should."""
    if out is None and not any(Path(sign).exists() for sign in DRIVER_SIGNS):
        say("nothing was run: this host has no NVIDIA GPU")
        return 0
    about = ask(folder, "about", out, LIMIT_S)
    if "name" not in about:
        say(f"nothing was run: {about.get('refused', about.get('error'))}")
        return 1
    plan_file = folder / "plan.json"
    if not plan_file.exists():
        say(f"nothing was run: {folder} holds no artifacts (make gpu-artifacts builds them)")
        return 1
    plan: Mapping[str, Mapping[str, Any]] = json.loads(plan_file.read_text())
    say(
        f"{about['name']}, capability {'.'.join(map(str, about['capability']))}, CUDA {about['cuda']}"
    )
    results: dict[str, dict[str, Any]] = {}
    ends = Counter[str]()
    for name, check in plan.items():
        limit_s = FAULT_LIMIT_S if check["fault"] else LIMIT_S
        found = ask(folder, name, out, limit_s)
        message = judge(check, found)
        if check["fault"] and not message:
            message = judge(plan[WELL_AGAIN], ask(folder, WELL_AGAIN, out, LIMIT_S))
            message = message and f"afterwards {WELL_AGAIN} failed: {message}"
        ends["failed" if message else "not run" if "skipped" in found else "well"] += 1
        other = results.get(check.get("beside", ""), {})
        say(f"{name:20}{message or describe(check, found) + compare(check, found, other)}")
        results[name] = {**found, "failed": message} if message else found
    for name, tune in STUDIES.items():
        found = tune(folder, about["fitting"], out)
        message = found.get("error", "")
        ends["failed" if message else "not run" if "skipped" in found else "well"] += 1
        say(f"{name:20}{message or describe_study(found)}")
        results[name] = {**found, "failed": message} if message else found
    counts = ", ".join(f"{ends[end]} {end}" for end in ("well", "failed", "not run") if ends[end])
    say(f"{len(plan)} kernels and {len(STUDIES)} studies: {counts}")
    write_figures(about, results, out)
    return 1 if ends["failed"] else 0


def ask(folder: Path, name: str, out: Path | None, limit_s: float) -> dict[str, Any]:
    """What a child of its own says of one kernel, or how it ended."""
    command = [sys.executable, str(CHILD), str(folder), name, "stubbed" if out else ""]
    done = run_apart(command, limit_s)
    if done is None:
        return {"error": "timeout"}
    last = (done.stdout.strip().splitlines() or [""])[-1]
    try:
        found: dict[str, Any] = json.loads(last)
    except ValueError:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"error": f"ended with {done.returncode}: {why}"}
    return found


def run_apart(
    command: Sequence[str], limit_s: float, **own: str
) -> subprocess.CompletedProcess[str] | None:
    """A program that finds the sources, to its end; None where it took too long."""
    paths = f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    env = {**os.environ, "PYTHONPATH": paths, **own}
    try:
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return None


def tune_packed(
    folder: Path, fitting: Sequence[str], out: Path | None, *devices: str
) -> dict[str, Any]:
    """What ``tileyard tune --from`` says of the space that was built for this GPU, in a home of its own."""
    spaces = [one for name in fitting if (one := folder / name / "space.tyb").exists()]
    if not spaces:
        return {"skipped": "no space was built for this architecture"}
    if out is not None:
        return {"skipped": "a stubbed driver is not installed"}
    command = [sys.executable, "-m", "tileyard", "tune", "--from", str(spaces[-1]), "--json"]
    command += [word for device in devices for word in ("--devices", device)]
    with tempfile.TemporaryDirectory() as home:
        done = run_apart(command, LIMIT_S, TILEYARD_HOME=home, TILEYARD_LOCK_DIR=f"{home}/locks")
    if done is None:
        return {"error": "timeout"}
    why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    if why.startswith("ModuleNotFoundError"):
        return {"skipped": f"tileyard[cuda] is not installed: {why}"}
    if done.returncode != 0:
        return {"error": f"ended with {done.returncode}: {why}"}
    study = json.loads(done.stdout)
    return {name: study[name] for name in ("device", "silicon", "trials", "finals", "best")}


def tune_on_two(folder: Path, fitting: Sequence[str], out: Path | None) -> dict[str, Any]:
    """The same on two GPUs, each of which has to run something."""
    found = tune_packed(folder, fitting, out, "cuda:0", "cuda:1")
    if "there is no device 'cuda:1'" in found.get("error", ""):
        return {"skipped": "this host has no second GPU"}
    used = {trial["device"] for trial in found.get("trials", ())}
    if "trials" in found and len(used) < 2:
        return {"error": f"only {', '.join(used)} ran anything"}
    return found


def tune_chain(_folder: Path, fitting: Sequence[str], out: Path | None) -> dict[str, Any]:
    """What a chain for TileLang's tuner says, with its import changed: it needs TileLang."""
    if find_spec("tilelang") is None:
        return {"skipped": "TileLang is not installed"}
    if out is not None or CHAIN_ARCH not in fitting:
        return {"skipped": f"it is for {CHAIN_ARCH} and a driver"}
    text = CHAIN.read_text().replace("from tilelang.autotuner import", "from tileyard import")
    with tempfile.TemporaryDirectory() as home:
        script = Path(home, "chain.py")
        script.write_text(text + PRINT)
        command = [sys.executable, str(script)]
        done = run_apart(command, LIMIT_S, TILEYARD_HOME=home, TILEYARD_LOCK_DIR=f"{home}/locks")
    if done is None:
        return {"error": "timeout"}
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        return {"error": f"ended with {done.returncode}: {said[-1]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    best = {"config": found["config"], "measurement": {"median_ns": found["latency"] * 1e6}}
    return {"best": best, "finals": [], "trials": []}


STUDIES = {"tune --from": tune_packed, "tune on two GPUs": tune_on_two, "chain": tune_chain}


def describe_study(found: Mapping[str, Any]) -> str:
    """One line on a study that named a winner."""
    if "skipped" in found:
        return f"not run: {found['skipped']}"
    config = " ".join(f"{key}={value}" for key, value in found["best"]["config"].items())
    ends = Counter(trial["outcome"] for trial in found["trials"])
    told = ", ".join(f"{count} {outcome}" for outcome, count in ends.items())
    decided = [
        *(one for one in found["finals"] if one["config"] == found["best"]["config"]),
        found["best"],
    ]
    ns = decided[0]["measurement"]["median_ns"]
    told = f"; {told}, {len(found['finals'])} in the finals" if told else ""
    return f"{ns / 1e3:9.2f} us, {config}{told}"


def judge(check: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """What is wrong, empty for nothing."""
    error = str(found.get("error", found.get("refused", "")))
    if check["fault"]:
        return (
            "" if check["fault"] in error else f"expected {check['fault']}, got {error or 'an end'}"
        )
    return error


def describe(check: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """One line on what went well."""
    if check["fault"]:
        return f"ended by {check['fault']}, and a kernel that is well ran afterwards"
    if "skipped" in found:
        return f"not run: {found['skipped']}"
    text = f"{found['ns'] / 1e3:9.2f} us"
    if "torch_ns" in found:
        text += f", torch's {check['like']} {found['torch_ns'] / 1e3:.2f} us"
    if "overhead_us" in found:
        text += f", {found['overhead_us']:.1f} us of the host's time for a call"
    return text


def compare(check: Mapping[str, Any], found: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The time of the kernel behind TileLang's own pipeline, where both ran."""
    if "ns" not in found or "ns" not in other:
        return ""
    return f", {check['beside']} {other['ns'] / 1e3:.2f} us"


def write_figures(
    about: Mapping[str, Any], results: Mapping[str, object], out: Path | None
) -> None:
    """Keep what was seen in a file with the GPU's name."""
    product = re.sub(r"[^a-z0-9]+", "-", about["name"].lower()).strip("-")
    path = (out or ROOT / "docs" / "figures") / f"gpu-{product}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    path.write_text(json.dumps({"date": date, **about, "kernels": results}, indent=1) + "\n")
    say(f"written to {path}")


def say(text: str) -> None:
    """A line for whoever watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    given = sys.argv[1:]
    stub_out = Path(given[2]) if given[1:2] == ["--stubbed"] else None
    sys.exit(main(Path(given[0]), stub_out))
