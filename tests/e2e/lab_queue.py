"""A queue ``lab`` of somebody else's, declared in a project's file, with one device behind it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.conftest import ROOT

QUEUE = ROOT / "tests" / "faults" / "fake_queue.py"


def write(value: object) -> str:
    """Texts, numbers and lists of them are the same in JSON and TOML."""
    return msgspec.json.encode(value).decode()


@contextmanager
def serve_queue(project: Path, served: str, /, *options: str, **declared: object) -> Iterator[Path]:
    """Declare the queue and serve it; its folder. The server lends ``served``, and ``submit`` gets these options besides."""
    folder = project / "a queue"
    for name in ("tasks", "faults"):
        (folder / name).mkdir(parents=True)
    client = [sys.executable, str(QUEUE), "task-submit", str(folder), "--device", "auto"]
    limits = ["--max-time", "{run_limit_s}", "--timeout", "{limit_s}"]
    fields = {
        "name": "lab",
        "submit": [*client, *options, *limits, "{env:--env}", "--run", "{shell_command}"],
        "cancel": [sys.executable, str(QUEUE), "cancel", str(folder), "{job}"],
        "job": r"^task (\d+) queued",
        **declared,
    }
    tables = {key: value for key, value in fields.items() if isinstance(value, dict)}
    lines = ["[[queue]]", *(f"{k} = {write(v)}" for k, v in fields.items() if k not in tables)]
    for name, table in tables.items():
        lines += [f"[queue.{name}]", *(f"{key} = {write(value)}" for key, value in table.items())]
    (project / "tileyard.toml").write_text("\n".join(lines), encoding="utf-8")
    server = [sys.executable, str(QUEUE), "serve", str(folder), *served.split()]
    with pytest.MonkeyPatch.context() as environment:
        for variable in ("TASK_DEVICE", "TILEYARD_SUBMISSION"):
            environment.delenv(variable, raising=False)
        with subprocess.Popen(server) as process:
            yield folder
            process.kill()
