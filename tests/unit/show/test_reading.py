"""What the engine gets of the options of a verb."""

from pathlib import Path
from typing import Annotated, TypedDict

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.show.kernel_options import (
    DeviceNames,
    MemoryLimit,
    PythonLimit,
    QueueLimit,
    parse_kernel,
)
from tileyard.show.options import FileOption, Switch, complete, fill, read_options
from tileyard.show.values import FilePath
from tileyard.verbs.tune.options import start_table, start_tune


class Options(TypedDict, total=False):
    """Options of a verb that does not exist."""

    devices: DeviceNames
    queue_limit: QueueLimit
    memory_limit: MemoryLimit
    from_: Annotated[FilePath, FileOption("A file.")]
    quiet: Annotated[bool, Switch("Say nothing.")]
    python_limit: PythonLimit


class Sent(Record, kw_only=True):
    """What is sent of them."""

    devices: tuple[str, ...]
    queue_limit_s: float
    memory_limit_bytes: int
    quiet: bool
    finalists: int = 16


def _read(given: Options) -> dict[str, object]:
    return read_options(Options, complete(Options, given))


def test_each_field_is_filled_with_what_is_read_of_its_option() -> None:
    """A text is in the unit that ends the field's name; a field without an option keeps its default."""
    values = _read({"queue_limit": "90s", "memory_limit": "2GiB", "devices": "cpu"})
    expected = Sent(devices=("cpu",), queue_limit_s=90.0, memory_limit_bytes=2 << 30, quiet=False)
    assert fill(Sent, values) == expected


def test_what_is_not_given_is_read_from_the_default() -> None:
    """In Python and on the command line alike."""
    assert fill(Sent, _read({})).queue_limit_s == 1800.0
    assert _read({})["from_"] == ""
    assert _read({"from_": "a.tyb"})["from_"] == str(Path("a.tyb").absolute())


def test_a_field_that_differs_is_named() -> None:
    """It wins over the option of its name."""
    assert fill(Sent, _read({"quiet": False}), quiet=True, finalists=2).quiet


def test_a_limit_of_no_time_is_refused() -> None:
    """In a line that names the flag; without the option the usual limits apply."""
    assert _read({})["python_limit"] == 0.0
    with pytest.raises(UsageError, match="--python-limit is 0"):
        _read({"python_limit": "0s"})


def test_a_table_has_the_limits_of_its_studies() -> None:
    """They bound the author that all studies share."""
    given = {"arg": {"M": [8, 16]}, "python_limit": "5m", "golden_threads": 2}
    table = start_table(start_tune("k.py", "", given), given)  # type: ignore[arg-type]  # they are
    assert table is not None
    assert (table.python_limit_s, table.golden_threads) == (300.0, 2)


def test_a_link_to_nothing_is_called_one(tmp_path: Path) -> None:
    """As a copy of the example ``gemm.py`` is, which is a link in the repository."""
    link = tmp_path / "gemm.py"
    link.symlink_to("../demo/gemm.py")
    with pytest.raises(
        UsageError, match=r"gemm\.py is a link to \.\./demo/gemm\.py, which is no file"
    ):
        parse_kernel(f"{link}::gemm")
