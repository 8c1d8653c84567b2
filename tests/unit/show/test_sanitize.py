"""What ``--sanitize`` asks for."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.test.options import start_test
from tileyard.verbs.tune.options import start_tune

SANITIZED = "cpu:native,sanitize=1"


def test_a_study_is_timed_for_its_own_target() -> None:
    """Sanitized builds are for another one, of the same CPU level."""
    start = start_tune("k.py", "", {"sanitize": True})
    assert (start.target, start.request.sanitized) == ("cpu", SANITIZED)
    start = start_tune("k.py", "", {"sanitize": True, "cpu_arch": "x86-64-v3"})
    assert start.request.sanitized == "cpu:x86-64-v3,sanitize=1"
    start = start_tune("k.py", "", {"sanitize": True, "target": "cpu:native,vectors=128"})
    assert start.request.sanitized == "cpu:native,vectors=128,sanitize=1"


def test_a_target_is_recorded_by_one_name() -> None:
    """However its options are written, so that what is known of it is found again."""
    spelled = ("cpu:units=0", "cpu:native,units=0", "cpu:optimize=3,units=0", "cpu:native")
    starts = [start_tune("k.py", "", {"target": one}) for one in spelled]
    assert [one.target for one in starts] == [*["cpu:native,units=0"] * 3, "cpu"]


def test_a_suite_is_built_sanitized() -> None:
    """It times nothing, so nothing else is built."""
    assert start_test(__file__, {"sanitize": True}).target == SANITIZED


@pytest.mark.parametrize("target", ["cuda", "cuda:sm_90a", "npu"])
def test_targets_without_sanitized_builds_refuse(target: str) -> None:
    """In one line, for a study and for a suite."""
    expected = f"--sanitize is for the target cpu, and not for {target}"
    with pytest.raises(UsageError) as refused:
        start_tune("k.py", "", {"sanitize": True, "target": target})
    assert str(refused.value) == expected
    with pytest.raises(UsageError) as refused:
        start_test(__file__, {"sanitize": True, "target": target})
    assert str(refused.value) == expected


def test_a_bundle_is_built_already() -> None:
    """So it cannot be built otherwise."""
    with pytest.raises(UsageError) as refused:
        start_test("", {"from_": __file__, "sanitize": True})
    assert str(refused.value) == "--sanitize has no effect with --from: its kernels are built"
