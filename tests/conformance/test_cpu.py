"""The CPU target against the interpreter."""

import os

import pytest

from tileyard.model import Device
from tileyard.targets.base import Target
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.targets import TargetContract

_TARGET = CpuTarget()


class TestCpuTarget(TargetContract):
    """The contract, on two threads where there are two cores."""

    @pytest.fixture
    def target(self) -> Target:
        """One compiler for the whole session."""
        return _TARGET

    @pytest.fixture
    def device(self) -> Device:
        """Up to two cores of this host."""
        cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
        return Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
