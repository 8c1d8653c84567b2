"""What is said of foreign queues without asking them."""

import sys
from pathlib import Path

from tileyard.base.settings import Settings
from tileyard.devices.foreign import SUBMITTER, decode_queues, submitter_argv, survey_queues
from tileyard.devices.survey import survey_devices

DECLARED = """
[[queue]]
name = "lab"
device = "npu:{{device}}"
identity = "910B3"
submit = ["{0}", "{{command}}"]
slots = 4
[[queue]]
name = "far"
device = "cuda:0"
identity = "H100"
submit = ["/no/such/tool", "{{command}}"]
"""


def declare(folder: Path) -> Settings:
    """A host with two queues."""
    (folder / "devices.toml").write_text(DECLARED.format(sys.executable), encoding="utf-8")
    return Settings(home=folder / "home", lock_dir=folder / "locks", cores=(0,), host_config=folder)


def test_queues_are_described_as_they_are_declared(tmp_path: Path) -> None:
    """The class is that of the far side's device; a client that is not here is told."""
    found = survey_queues(declare(tmp_path), tmp_path)
    expected = [
        ("queue:lab", "npu", "910B3", 4, sys.executable, True),
        ("queue:far", "cuda", "H100", 1, "/no/such/tool", False),
    ]
    assert [(q.name, q.kind, q.identity, q.slots, q.tool, q.is_tool_found) for q in found] == (
        expected
    )


def test_our_tasks_are_counted_by_who_follows_them(tmp_path: Path) -> None:
    """A process that merely names the command, as its keeper does, is none; nor is one that ended."""
    settings = declare(tmp_path)
    (lab,) = decode_queues(
        [{"name": "lab", "device": "npu:0", "identity": "i", "submit": ["x", "{command}"]}], "here"
    )
    argv = submitter_argv(lab)
    for pid, command in enumerate([argv, argv, ("keeper", SUBMITTER, "--", "lab"), ()], 100):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        data = "".join(f"{part}\0" for part in command).encode()
        (tmp_path / f"proc/{pid}/cmdline").write_bytes(data)
    (tmp_path / "proc/104").mkdir()
    expected = {"queue:lab": 2, "queue:far": 0}
    assert {q.name: q.tasks for q in survey_queues(settings, tmp_path)} == expected


def test_a_survey_has_the_queues_too(tmp_path: Path) -> None:
    """Beside the devices of the host, among which they are not."""
    seen = survey_devices(declare(tmp_path), 0.1, pause=lambda window_s: None)
    expected = ["queue:lab", "queue:far"]
    assert [queue.name for queue in seen.queues] == expected
    assert not any(device.name.startswith("queue:") for device in seen.devices)
