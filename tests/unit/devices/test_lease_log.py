"""Lines of the log of leases, as a stranger or a full disk may have left them."""

import os
import time
from pathlib import Path

import pytest

from tileyard.devices.lease_log import LeaseEnd, read_log
from tileyard.processes.keeper.files import make_directory
from tileyard.processes.keeper.rules import SETTINGS

NAME = f"{os.geteuid()}.20261129-120000.00"
FACTS = "number=5 since={since} pid=7 device=npu:0 device=npu:1 command=a%20%1b%5b31m"
END = f"end {FACTS} held_s=2.5 how=code%203 ."


def read(tmp_path: Path, *lines: str, name: str = NAME, first: str = NAME) -> list[LeaseEnd]:
    """How the leases ended that are in a file of these lines."""
    locks = tmp_path / "locks"
    make_directory(str(locks))
    text = "\n".join([first, *lines, ""]).replace("{since}", f"{time.time():.3f}")
    (locks / "log" / name).write_bytes(text.encode())
    return [lease.end for lease in read_log(locks, 1).leases]


def test_a_lease_is_read_from_its_last_line(tmp_path: Path) -> None:
    """It is found by each of its devices, and their class."""
    assert read(tmp_path, f"begin {FACTS} .", END) == [LeaseEnd.CODE]
    locks = tmp_path / "locks"
    (lease,) = read_log(locks, 1, "npu:1").leases
    expected = (5, 7, ("npu:0", "npu:1"), "a \x1b[31m", 2.5, 3)
    found = (lease.number, lease.pid, lease.devices, lease.command, lease.held_s, lease.status)
    assert found == expected
    assert read_log(locks, 1, "npu").leases == (lease,)
    assert not read_log(locks, 1, "npu:2").leases


@pytest.mark.parametrize(
    "line",
    [
        END.removesuffix(" ."),
        END.removesuffix("%203 ."),
        END.replace("end", "other"),
        END.replace("number=5", "number=-5"),
        END.replace("number=5", f"number={'9' * 99}"),
        END.replace("held_s=2.5", "held_s=nan"),
        END.replace("since={since}", "since=1e99"),
        END.replace("how=code%203", "how=kept"),
        END.replace("command=", "command=%zz"),
        END.replace("pid=7 ", ""),
        "\x80",
        "",
    ],
)
def test_a_line_that_is_not_whole_is_left_out(tmp_path: Path, line: str) -> None:
    """And those around it are read."""
    other = END.replace("number=5", "number=6").replace("code", "signal")
    assert read(tmp_path, line, other) == [LeaseEnd.SIGNAL]


def test_a_file_counts_only_under_its_own_name(tmp_path: Path) -> None:
    """Neither a second name of another file nor one of another user's."""
    assert read(tmp_path, END, first="other") == []
    strangers = f"{os.geteuid() + 1}.20261129-120000.00"
    assert read(tmp_path, END, name=strangers, first=strangers) == []


def test_leases_of_earlier_days_are_left_out(tmp_path: Path) -> None:
    """Unless more days are asked for; what ended within them counts."""
    early = time.time() - 2 * 86400
    long = END.replace("number=5", "number=6").replace("held_s=2.5", "held_s=172000")
    lines = [line.replace("{since}", f"{early:.3f}") for line in (END, long)]
    assert read(tmp_path, *lines) == [LeaseEnd.CODE]
    expected = [5, 6]
    assert [lease.number for lease in read_log(tmp_path / "locks", 3).leases] == expected


def test_the_log_says_why_there_is_none(tmp_path: Path) -> None:
    """Root may have set so."""
    assert read(tmp_path, END) == [LeaseEnd.CODE]
    (tmp_path / "locks" / SETTINGS).write_text("keep_days=0\n", encoding="ascii")
    note = "root has set that no lease is logged"
    assert read_log(tmp_path / "locks", 1).note == note
