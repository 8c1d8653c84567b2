"""Checks of synchronization that are kept: for which code, and until when."""

from pathlib import Path

import pytest

from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.objects import ObjectStore
from tileyard.frontend.reads import Watch
from tileyard.workers import sync_check
from tileyard.workers.protocol import SyncChecked
from tileyard.workers.sync_check import check_kept

CHECKED = SyncChecked(kernel="k", config={}, blocks=1, grid=1, findings=(), unchecked=())


@pytest.mark.parametrize(("doubts", "most"), [([], 1), (["unknown"], 2)])
def test_a_check_is_kept_until_a_file_that_it_read_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doubts: list[str], most: int
) -> None:
    """It is asked once for code that has an identity, and again once a file appears that it looked for."""
    objects, file = ObjectStore(tmp_path / "objects"), tmp_path / "sizes"
    calls: list[bool] = []

    def ask() -> SyncChecked:
        try:
            calls.append(bool(file.read_bytes()))
        except FileNotFoundError:
            calls.append(False)
        return CHECKED

    def check() -> None:
        monkeypatch.setattr(sync_check, "WATCH", Watch())  # as in a fresh process
        rests = Footprint(parts={"kernel": "d"}, doubts=doubts)
        assert check_kept(objects, rests, ask) == CHECKED

    check()
    check()
    assert calls == [False] * most
    file.write_text("1", encoding="utf-8")
    check()
    assert calls == [False] * most + [True]
