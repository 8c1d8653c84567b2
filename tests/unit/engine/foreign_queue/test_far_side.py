"""What the far side of a task makes of the device and the environment that it was given."""

from pathlib import Path

import pytest

from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import Batch
from tileyard.devices.foreign import digest_environment
from tileyard.engine.foreign_queue.far_side import (
    accept_device,
    check_environment,
    find_device_name,
    read_token,
)
from tileyard.workers.task_lines import Task


def task(**changes: object) -> Task:
    """A task without cases."""
    fields: dict[str, object] = {
        "token": "t",
        "batch": Batch(id="b", cases=()),
        "entries": (),
        "device": "npu:{device}",
        "device_variable": "TASK_DEVICE",
        "variables": ("A", "B"),
        **changes,
    }
    return Task(**fields)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _plain_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No declarations, and nothing set for any class of device."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TILEYARD_HOST_CONFIG", str(tmp_path / "etc"))
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)


def test_the_device_is_what_the_queue_says() -> None:
    """An option counts more than the variable; a fixed name needs neither."""
    expected = ("npu:3", "npu:5", "cpu:0")
    assert (
        find_device_name(task(), "", {"TASK_DEVICE": "3"}),
        find_device_name(task(), "5", {"TASK_DEVICE": "3"}),
        find_device_name(task(device="cpu:0", device_variable=""), "", {}),
    ) == expected
    with pytest.raises(DamagedError, match="TASK_DEVICE is not set"):
        find_device_name(task(), "", {"TASK_DEVICE": ""})


def test_an_undeclared_device_is_taken_at_the_queues_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without locks, with what the queue has set for it or each of several, else its class's usual ones."""
    device = accept_device("npu:3")
    expected = ("npu:3", "npu", (), {"ASCEND_RT_VISIBLE_DEVICES": "3"})
    assert (device.name, device.kind, device.locks, device.env) == expected
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "7")
    assert accept_device("npu:3").env == {"ASCEND_RT_VISIBLE_DEVICES": "7"}
    assert accept_device("npu:3", task(has_mask=False)).env == {}
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "7,5")
    assert accept_device("npu:3").env == {"ASCEND_RT_VISIBLE_DEVICES": "3"}
    both = accept_device("npu:3,4")
    expected_env = {
        "TASK_DEVICE": "0,1",
        "TILEYARD_DEVICES": "npu:3,npu:4",
        "ASCEND_RT_VISIBLE_DEVICES": "7,5",
    }
    assert both.env == expected_env
    assert [one.env for one in both.members] == [
        {"ASCEND_RT_VISIBLE_DEVICES": "7"},
        {"ASCEND_RT_VISIBLE_DEVICES": "5"},
    ]
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "0-7")
    assert accept_device("npu:3,4").env["ASCEND_RT_VISIBLE_DEVICES"] == "3,4"
    assert accept_device("npu:3").env == {"ASCEND_RT_VISIBLE_DEVICES": "3"}


def test_what_cannot_be_a_device_is_refused() -> None:
    """A CPU that is not there, and a name that is none."""
    for name in ("cpu:cores=8000", "npu:1,2 3", "npu"):
        with pytest.raises(UsageError):
            accept_device(name)
    expected: tuple[str, ...] = ()
    assert accept_device("cpu:0").locks == expected


def test_the_environment_is_what_was_sent_or_nothing_is_run() -> None:
    """Missing and changed variables are named, their values are not."""
    sent = {"A": "1 2", "B": "secret\n"}
    digest = digest_environment(sent)
    check_environment(task(), digest, {**sent, "C": "3"})
    with pytest.raises(DamagedError, match="B is missing"):
        check_environment(task(), digest, {"A": "1 2"})
    with pytest.raises(DamagedError, match="one of A, B has another value") as raised:
        check_environment(task(), digest, {**sent, "B": "secret"})
    expected = False
    assert ("secret" in str(raised.value)) is expected


def test_a_token_is_read_or_it_is_said_why_not(tmp_path: Path) -> None:
    """Found, missing, and with another content."""
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "a").write_text("a", encoding="ascii")
    (tmp_path / "tokens" / "b").write_text("x", encoding="ascii")
    expected = ["", "it holds 'x'", "No such file or directory"]
    assert [read_token(name, tmp_path).problem for name in "abc"] == expected
