"""Virtual environments with other packages than the current one, made by pip once per set of requirements."""

import hashlib
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tileyard.artifacts.copying import scratch_folder
from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.base.modes import make_folder
from tileyard.verbs.regress.plan.revisions import FOLDER, is_kept

PREFIX = "pip:"
INSTALL_LIMIT_S = 1800.0
_NAME = "environment"


def find_environment(requirements: Sequence[str], home: Path) -> Path:
    """The Python of an environment with these requirements; all other packages are those installed here. It
    stays while the caller pins ``home``. Raises UsageError with pip's message.
    """
    wanted = sorted(filter(None, (one.strip() for one in requirements)))
    if not wanted or any(one.startswith("-") for one in wanted):
        raise UsageError(
            f"{PREFIX}{','.join(requirements)} names no requirement", "pip:tilelang==0.1.14"
        )
    here = sysconfig.get_path("purelib")
    digest = hashlib.sha256("\0".join((sys.version, here, *wanted)).encode()).hexdigest()[:20]
    folder = home / FOLDER / f"pip-{digest}"
    if not is_kept(folder, home):
        make_folder(folder.parent)
        with scratch_folder(folder.parent, "tmp-") as scratch:
            draft = scratch / _NAME
            _make(draft, wanted, Path(here))
            try:
                draft.rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was faster
                    raise
    return folder / "bin" / "python"


def _make(folder: Path, requirements: Sequence[str], here: Path) -> None:
    _run(
        [sys.executable, "-P", "-m", "venv", "--without-pip", str(folder)],
        "no environment can be made",
    )
    (packages,) = folder.glob("lib/python3*/site-packages")
    # After its own: other packages are found where they are.
    (packages / "here.pth").write_text(f"{here}\n")
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-P", "-m", "pip", "--python", python, "install", "--quiet"]
    options = ["--disable-pip-version-check", "--no-input", "--", *requirements]
    _run([*pip, *options], f"{PREFIX}{','.join(requirements)} cannot be installed")
    if (here / "nvidia").is_dir() and not (packages / "nvidia").exists():
        (packages / "nvidia").symlink_to(
            here / "nvidia"
        )  # libraries are looked for beside TileLang


def _run(argv: Sequence[str], failing: str) -> None:
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=INSTALL_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise ToolMissingError(f"{failing}: it takes longer than {INSTALL_LIMIT_S:g} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        why = (lines or done.stderr.splitlines() or ["no word of why"])[-1]
        raise UsageError(f"{failing}: {why.removeprefix('ERROR: ')}")
