"""Runs all scripts of a folder under ``tileyard exec`` and says what became of each of them.

    python benchmarks/exec_examples.py FOLDER [--only TEXT] [--limit-s 600] [--memory-gib 16] [--jobs 1]

One line a script: what became of it, its seconds, its name, and the reason. A script *passed* where it ended
with status 0 and launched a kernel; *refused* where a kernel is not covered, which the line names with its
place; *modules* where it needs some that are not installed; *memory* and *time* where it went past a limit;
*nothing* where it launched no kernel. The sum of all comes last. Whether it was the script's own torch part
that took the memory or the time is not known here.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a script."""

    script: str
    outcome: str
    seconds: float
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a script may take."""

    seconds: float
    memory_bytes: int


def run_script(script: Path, folder: Path, limits: Limits) -> Verdict:
    """Run one script in its own folder, with whatever it writes to standard output and error kept aside."""
    name = str(script.relative_to(folder))
    command = [sys.executable, "-m", "tileyard", "exec", "--tally", "json", script.name]
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            command,
            cwd=script.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (limits.memory_bytes,) * 2)
        try:
            status: int | None = process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
        log.seek(0)
        text = log.read()
    outcome, reason = judge(status, text)
    return Verdict(script=name, outcome=outcome, seconds=time.monotonic() - started, reason=reason)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the script and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def judge(status: int | None, text: str) -> tuple[str, str]:
    """What became of a script that ended with ``status`` (None: it did not end) and wrote ``text``."""
    lines = text.strip().splitlines()
    summary = _read_summary(lines)
    said = [line for line in lines if not line.startswith('{"')]
    last = said[-1].strip() if said else ""
    refused = summary.get("refused")
    if status is None:
        return "time", last
    if status == 0:
        return ("passed", "") if summary.get("launched") else ("nothing", "no kernel was launched")
    if isinstance(refused, list) and refused and "compile_error" in text:
        return "refused", str(refused[0]["message"])
    if "ModuleNotFoundError" in text or "ImportError" in text:
        return "modules", last
    if "MemoryError" in text or "DefaultCPUAllocator" in text:
        return "memory", last
    return "failed", f"status {status}: {last}"


def _read_summary(lines: list[str]) -> dict[str, object]:
    """The line that ``--tally json`` writes last."""
    for line in reversed(lines):
        if line.startswith('{"'):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    return {}


def main() -> None:
    """Run what is asked for, and print as it goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="scripts whose path has this text in it")
    parser.add_argument("--limit-s", type=float, default=600.0)
    parser.add_argument("--memory-gib", type=float, default=16.0)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    limits = Limits(seconds=asked.limit_s, memory_bytes=int(asked.memory_gib * _GIB))
    scripts = [
        script
        for script in sorted(folder.rglob("*.py"))
        if asked.only in str(script) and "__main__" in script.read_text(errors="replace")
    ]
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(asked.jobs) as pool:
        for verdict in pool.map(lambda script: run_script(script, folder, limits), scripts):
            counts[verdict.outcome] += 1
            print(
                f"{verdict.outcome:8}{verdict.seconds:6.0f} s  {verdict.script}  {verdict.reason[:200]}",
                flush=True,
            )
    print(
        f"{len(scripts)} scripts: " + ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    )


if __name__ == "__main__":
    main()
