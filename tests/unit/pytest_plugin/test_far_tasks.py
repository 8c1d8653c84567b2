"""What goes into one task of a queue."""

import asyncio
from pathlib import Path

import pytest

from tileyard.pytest_plugin.far_records import FarTest
from tileyard.pytest_plugin.far_tasks import Part, find_due, find_left


@pytest.mark.parametrize(
    ("waiting", "busy", "due"),
    [
        ("", 0, None),
        ("ab", 1, None),
        ("ab", 0, "a"),
        ("aba", 1, None),
        ("abab", 1, None),
        ("abbb", 1, "b"),
        ("ababab", 1, "a"),
    ],
)
def test_a_task_begins_once_it_is_full_or_nobody_could_fill_it(
    waiting: str, busy: int, due: str | None
) -> None:
    """One holds parts of one kind only, up to three here; the others do not fill it."""
    cases = 3
    assert find_due(waiting, cases, busy) == due


@pytest.mark.parametrize(
    ("told", "written", "is_well", "found"),
    [
        ("", "", True, ""),
        ("", "abc", True, "abc"),
        ("", "abc", False, "ab"),
        ("ab", "abc", False, ""),
        ("ac", "abc", False, "b"),
        ("", "a", False, ""),
    ],
)
def test_what_a_lost_task_had_done_counts(
    tmp_path: Path, told: str, written: str, is_well: bool, found: str
) -> None:
    """An answer counts if a later part has ended, too, or the task well; what a line has told of is known."""

    async def find() -> str:
        parts = []
        for name in "abc":
            work = FarTest(name=name, limit_s=1.0, answer=str(tmp_path / name))
            part = Part(work=work, ended=asyncio.get_running_loop().create_future())
            if name in told:
                part.ended.cancel()
            if name in written:
                (tmp_path / name).write_text("", encoding="ascii")
            parts.append(part)
        return "".join(result.case for result in find_left(parts, is_well=is_well))

    assert asyncio.run(find()) == found
