"""Scripts in copies of a process that has imported TileLang."""

import subprocess
from pathlib import Path

from tests.conftest import CommandLine
from tests.warm_python import KERNELS, warm


def run_script(cli: CommandLine, script: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of the command line's folder to its end, as ``python -m`` runs it."""
    assert script.parent == cli.cwd
    return warm(KERNELS).run((), cli.cwd, cli.environment(), script.stem)
