"""Calls of the part of a test that holds a device: values go there and come back."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileyard.pytest_plugin.far_calls import RESULT, carry_out, take_over
from tileyard.pytest_plugin.far_records import FarCall, FarDone, FarGiven, read_answer, write_answer


def fill(where: Any, value: object) -> str:  # noqa: ANN401 - an array or a list
    """Change what is given in place, and print."""
    os.write(1, b"filled\n")
    where[0] = value
    return "done"


def give_lock() -> threading.Lock:
    """Return what cannot be sent."""
    return threading.Lock()


def hold_two(tile_device: Any) -> None:  # noqa: ANN401 - a stand-in
    """Hold one device, then two."""
    with tile_device() as one:
        pass
    with tile_device(count=2) as (first, second):
        pass
    raise AssertionError(f"{one} {first} {second}")


def call(folder: Path, function: Any, *args: object) -> FarDone:  # noqa: ANN401 - any
    """Make a call as the far side does."""
    made = FarCall(
        name="test#1",
        limit_s=1.0,
        modules={},
        given=str(folder / "call.given"),
        answer=str(folder / "call.done"),
    )
    write_answer(folder / "call.given", FarGiven(function=function, args=args, values={}))
    return read_answer(made.answer, carry_out(made, ("npu:0",)), FarDone)


def test_a_call_tells_its_result_what_it_printed_and_what_it_changed(tmp_path: Path) -> None:
    """What is given is a copy; what was not changed does not come back."""
    given = np.zeros(3)
    done = call(tmp_path, fill, given, 7.0)
    assert done.values == {RESULT: "done"}
    assert list(done.changed) == ["0"]
    assert given[0] == 0.0
    assert take_over(given, done.changed["0"])
    expected = [7.0, 0.0, 0.0]
    assert given.tolist() == expected
    assert (tmp_path / "call.out").read_text() == "filled\n"


def test_what_a_call_raises_comes_back(tmp_path: Path) -> None:
    """As the same exception, with the user's frames."""
    done = call(tmp_path, fill, (), 7.0)
    assert isinstance(done.error, TypeError)
    assert "in fill" in done.trace
    assert "in _call" not in done.trace


def test_what_cannot_be_sent_is_refused_in_words(tmp_path: Path) -> None:
    """The test then runs whole."""
    assert "cannot pickle" in call(tmp_path, give_lock).refused


def test_a_block_gets_one_device_or_as_many_as_it_counts(tmp_path: Path) -> None:
    """A count has it get a tuple, as on this host."""
    made = FarCall(
        name="test#1",
        limit_s=1.0,
        modules={},
        given=str(tmp_path / "call.given"),
        answer=str(tmp_path / "call.done"),
    )
    found = []
    for block, count in enumerate((None, 2)):
        given = FarGiven(function=hold_two, values={}, block=block, count=count)
        write_answer(Path(made.given), given)
        done = read_answer(made.answer, carry_out(made, ("npu:0", "npu:1")), FarDone)
        found.append(done.values)
    assert found == [{"one": "npu:0"}, {"first": "npu:0", "second": "npu:1"}]


@pytest.mark.parametrize(
    ("here", "there", "is_taken"),
    [
        ([1], [1, 2], True),
        ({"a": 1}, {"b": 2}, True),
        ({1}, {2}, True),
        ([[1]], [[2]], False),
        (np.zeros(2), np.ones(2), True),
        (np.zeros(2), np.ones(3), False),
        ((1,), (2,), False),
        ([1], {1}, False),
    ],
)
def test_arrays_and_flat_containers_are_changed_in_place(
    here: Any,  # noqa: ANN401 - any value
    there: Any,  # noqa: ANN401
    is_taken: bool,
) -> None:
    """Whatever else refers to parts of a value would not see that these were replaced."""
    before = repr(here)
    assert take_over(here, there) is is_taken
    assert repr(here) == (repr(there) if is_taken else before)
