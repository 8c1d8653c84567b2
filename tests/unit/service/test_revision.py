"""The revision of a user's files is a label: what prevents that it is found does not end a run."""

import os
import subprocess
from pathlib import Path

import pytest

from tileyard.base.errors import ToolMissingError
from tileyard.service.revision import find_revision, read_revision


def test_the_name_of_a_file_is_any_bytes(tmp_path: Path) -> None:
    """Also where git is configured to print such names as they are; the repository is behind a link."""
    link, real = tmp_path / "link", tmp_path / "real"
    (real / "kernels").mkdir(parents=True)
    link.symlink_to(real / "kernels")
    who = ("-c", "user.name=a", "-c", "user.email=a")
    for words in (
        ("init", "-q"),
        ("config", "core.quotePath", "false"),
        (*who, "commit", "-q", "--allow-empty", "-m", "one"),
    ):
        subprocess.run(["git", "-C", str(real), *words], check=True)
    (real / os.fsdecode(b"\xff")).touch()
    commit, _, changes = find_revision(link / "k.py").partition(" ")
    assert len(commit) == 40
    assert changes == "with changes in 1 file"


def test_a_git_that_cannot_be_started_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no revision then, and --clean says why."""
    (tmp_path / ".git").touch()
    (tmp_path / "git").touch(mode=0o600)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_revision(tmp_path / "k.py") == ""
    with pytest.raises(ToolMissingError, match="git cannot be started: Permission denied"):
        read_revision(tmp_path)
