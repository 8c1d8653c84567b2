"""What functions read: who hears of it."""

import sys
from pathlib import Path

from tileyard.frontend.footprint import find_read
from tileyard.frontend.reads import Reads


def test_what_a_found_result_has_read_is_heard_of(tmp_path: Path) -> None:
    """A footprint depends on it although no function runs, on an absent file, too."""
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.touch()
    heard: set[object] = set()
    sys.addaudithook(lambda *event: heard.add(find_read(*event)) if is_on else None)
    is_on = True
    for path in (there, absent):
        Reads(files={str(path): ""}).is_current(())
    is_on = False
    assert {str(there), str(absent)} <= heard
