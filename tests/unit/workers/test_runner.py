"""What a process prints for a case is moved to that case's log; who prints nothing has none."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileyard.workers.runner import Printed


@pytest.fixture
def output(tmp_path: Path) -> Iterator[int]:
    """A process's output, in which something stands already."""
    fd = os.open(tmp_path / "output", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, b"before all cases\n")
    yield fd
    os.close(fd)


def test_each_log_has_what_was_printed_for_it(tmp_path: Path, output: int) -> None:
    """Whatever writes to the descriptor; what stood there before the first case stays there."""
    printed = Printed(tmp_path, output)
    expected = {"a.log": "one\ntwo\n", "c.log": "three\n"}
    for log, texts in {"a": ("one", "two"), "b": (), "c": ("three",)}.items():
        printed.turn_to(f"logs/{log}.log")
        for text in texts:
            os.write(output, f"{text}\n".encode())
    printed.settle()
    logs = tmp_path / "logs"
    assert {path.name: path.read_text() for path in logs.iterdir()} == expected
    assert (tmp_path / "output").read_text() == "before all cases\n"


def test_a_log_that_was_begun_is_gone_on_with(tmp_path: Path, output: int) -> None:
    """What the compiler said of a case stays in its log, and so does what came before a pause."""
    (tmp_path / "a.log").write_text("built\n")
    expected = "built\none\ntwo\n"
    printed = Printed(tmp_path, output)
    printed.turn_to("a.log")
    for text in ("one", "two"):
        os.write(output, f"{text}\n".encode())
        printed.settle()
    assert (tmp_path / "a.log").read_text() == expected


def test_what_a_dying_process_said_is_left_in_its_output(tmp_path: Path, output: int) -> None:
    """It is for the engine to take, since nobody else is left."""
    expected = "before all cases\nlast words\n"
    Printed(tmp_path, output).turn_to("a.log")
    os.write(output, b"last words\n")
    assert (tmp_path / "output").read_text() == expected
