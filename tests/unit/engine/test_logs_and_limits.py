"""What every provider of devices shares: how logs are written, and how limits of cases add up."""

from pathlib import Path
from typing import Any, Literal, cast

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.engine.provider import case_limit_s
from tileyard.engine.yard import Yard
from tileyard.events import Event, Note
from tileyard.model import Batch, Case, KernelWork, Limits
from tileyard.settings import Settings


def test_a_log_holds_whole_lines_and_is_there_only_if_something_was_said(tmp_path: Path) -> None:
    """Texts are appended, each ends its line, and no text makes no file."""
    yard = Yard(
        settings=Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,)),
        store=cast(Any, None),
        objects=ObjectStore(tmp_path / "objects"),
        authors=cast(Any, None),
        grounds={},
    )
    expected = "one\ntwo\n"
    for text in ("one", "", "two\n"):
        yard.append_log("logs/run/c1.log", text)
    yard.append_log("logs/run/c2.log", "")
    assert (tmp_path / "logs/run/c1.log").read_text(encoding="utf-8") == expected
    assert not (tmp_path / "logs/run/c2.log").exists()


def test_a_log_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    """Whoever has something to say goes on."""
    yard = Yard(
        settings=Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,)),
        store=cast(Any, None),
        objects=ObjectStore(tmp_path / "objects"),
        authors=cast(Any, None),
        grounds={},
    )
    told: list[Event] = []
    yard.listeners.append(told.append)
    (tmp_path / "logs").touch()
    for text in ("one", "two"):
        yard.append_log("logs/run/c1.log", text)
    (note,) = told
    assert isinstance(note, Note)
    assert note.text.startswith(f"cannot write to {tmp_path}/logs/run/c1.log: ")


@pytest.mark.parametrize(("order", "expected"), [("any", 2.0), ("interleaved", 5.0)])
def test_limits_add_up_only_while_cases_take_turns(
    order: Literal["any", "interleaved"], expected: float
) -> None:
    """A member of an interleaved batch is timed while the others are."""
    cases = tuple(
        Case(id=f"c{run_s:g}", work=KernelWork(kernel="k"), limits=Limits(run_s=run_s))
        for run_s in (2.0, 3.0)
    )
    assert case_limit_s(Batch(id="b", cases=cases, order=order), cases[0]) == expected
