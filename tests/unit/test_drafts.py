"""A file takes its place whole or not at all, whoever else may write to the folder."""

import os
from pathlib import Path

import pytest

from tileyard.drafts import draft_of


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    """What was there stays, and nothing is left beside it."""
    path = tmp_path / "report.xml"
    path.write_text("before")

    def fail() -> None:
        with draft_of(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("report.xml", "before")]
    with draft_of(path) as file:
        file.write(b"after")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("report.xml", "after")]


def test_a_link_that_was_guessed_right_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger who could foresee the name would have nothing of it."""
    monkeypatch.setattr(os, "urandom", lambda size: b"\0" * size)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / f".report.xml.{'00' * 8}").symlink_to(mine)
    with pytest.raises(FileExistsError), draft_of(tmp_path / "report.xml") as file:
        file.write(b"theirs")
    assert mine.read_text() == "mine"
