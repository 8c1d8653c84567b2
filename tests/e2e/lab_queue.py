"""A queue ``lab`` of somebody else's, declared in a project's file, with one device behind it."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import ROOT

QUEUE = ROOT / "tests" / "faults" / "fake_queue.py"
PAGE = ROOT / "docs" / "how-to" / "devices-behind-a-queue.md"


def declare(folder: Path) -> dict[str, Any]:
    """The declaration of task-submit that the docs show, with the stand-in as its client."""
    text = PAGE.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    (table,) = tomllib.loads(text)["queue"]
    client = [sys.executable, str(QUEUE), "task-submit", str(folder)]
    for name in ("submit", "cancel"):
        assert table[name][0] == "task-submit"
        table[name] = [*client, *table[name][1:]]
    return {**table, "slots": 1}


def write(value: object) -> str:
    """Texts, numbers and lists of them are the same in JSON and TOML."""
    return msgspec.json.encode(value).decode()


def is_left(folder: Path) -> bool:
    """Whether the queue still has a task, waiting or running."""
    return any(not (task / "code").exists() for task in (folder / "tasks").iterdir())


@contextmanager
def serve_queue(
    project: Path, served: str, /, *, counted: bool = True, **declared: object
) -> Iterator[Path]:
    """Declare the queue as the docs do, apart from what is ``declared`` here, and serve it; its folder. The
    server lends ``served``. Unless ``counted``, nothing tells it how many devices a task needs.
    """
    folder = project / "a queue"
    for name in ("tasks", "faults"):
        (folder / name).mkdir(parents=True)
    fields = {**declare(folder), **declared}
    if not counted:
        words = ("--device-num", "{devices}")
        fields["submit"] = [word for word in fields["submit"] if word not in words]
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
            try:
                yield folder
            finally:
                process.kill()
