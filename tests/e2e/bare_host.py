"""A host of its own with neither sources, nor a compiler, nor TileLang."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import CommandLine


def make_bare(folder: Path, tools: Sequence[str] = ()) -> CommandLine:
    """The command line of that host, in a new folder; it finds these programs, and cannot import TileLang."""
    (folder / "modules").mkdir(parents=True)
    (folder / "modules" / "tilelang.py").write_text("raise ImportError('there is no TileLang')")
    (folder / "bin").mkdir()
    for tool in tools:
        (folder / "bin" / tool).symlink_to(shutil.which(tool) or "")
    modules = [str(folder / "modules"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    path = {"PATH": str(folder / "bin"), "CC": "/nowhere/cc"}
    return CommandLine(folder, {**path, "PYTHONPATH": os.pathsep.join(filter(None, modules))})


def run_bare(host: CommandLine, *arguments: str, status: int = 0) -> str:
    """What a fresh process prints there; it must end with this status."""
    process = host.start(*arguments)
    said, complaint = process.communicate(timeout=240)
    assert process.returncode == status, complaint
    return said
