"""What every provider of devices shares: how logs are written, and how limits of cases add up."""

from pathlib import Path
from typing import Any, Literal, cast

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.events import Event, Note
from tileyard.base.model import (
    Batch,
    Case,
    Diagnostic,
    Elaborated,
    Kernel,
    KernelWork,
    Limits,
    SourceLine,
)
from tileyard.base.settings import Settings
from tileyard.engine.provider import case_limit_s
from tileyard.engine.yard import Yard


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


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    """One that has nothing to do."""
    return Yard(
        settings=Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,)),
        store=cast(Any, None),
        objects=ObjectStore(tmp_path / "objects"),
        authors=cast(Any, None),
        grounds={},
    )


def test_a_note_about_a_kernel_is_told_once_for_each_of_its_lines(yard: Yard) -> None:
    """Configs differ in the numbers, and each of them is elaborated."""
    told: list[Event] = []
    yard.listeners.append(told.append)
    lines = [SourceLine(file="/k.py", line=number) for number in (4, 7)]
    for kernel, start in (("one", 8), ("one", 16), ("two", 8)):
        notes = tuple(Diagnostic(message=f"from {start}", where=line) for line in lines)
        yard.tell_notes(Elaborated(kernel=Kernel(name=kernel), notes=notes))
    texts = [event.text for event in told if isinstance(event, Note)]
    assert texts == ["note: /k.py:4: from 8", "note: /k.py:7: from 8"] * 2


def test_a_log_that_cannot_be_written_is_told_once(tmp_path: Path, yard: Yard) -> None:
    """A process that sends anything goes on."""
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
