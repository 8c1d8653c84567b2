"""Git repositories of tests."""

import os
import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    """What a git command prints."""
    who = {
        f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
