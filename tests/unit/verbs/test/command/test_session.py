"""How the command names a run for those who want to repeat a part of it."""

from types import SimpleNamespace
from typing import Any

from tileyard.verbs.test.command.session import _name


def test_a_case_is_run_again_where_it_ran() -> None:
    """On the devices and hosts that the user named, as they were named."""
    start: Any = SimpleNamespace(parameters={"n": "1"}, devices=("npu",), hosts="slurm:-N 2")
    options: Any = {"sanitize": False}
    words = ["a.toml", "--set", "n=1", "--devices", "npu", "--hosts", "slurm:-N 2"]
    assert _name("a.toml", options, start) == words
