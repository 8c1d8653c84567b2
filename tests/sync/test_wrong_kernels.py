"""Kernels with one mistake each, a sample: none passes, and each mistake can be made in some kernel."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.sync.wrong_kernels import KINDS, SUBJECTS, tell_apart, write_file, wrong_kernels

pytestmark = pytest.mark.slow


def test_mutants_have_all_kinds_and_differ() -> None:
    """Each is a text of its own; kinds occur in several kernels."""
    kernels: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for subject in SUBJECTS:
        wrong = wrong_kernels(subject)
        assert len({one.text for one in wrong}) == len(wrong)
        for one in wrong:
            kernels[one.operator].add(subject.kernel)
    assert min(map(len, kernels.values())) >= 3


def test_no_wrong_kernel_passes(tmp_path: Path) -> None:
    """In ``tileyard test``, by its results or by its check; the right kernel does."""
    (subject,) = (one for one in SUBJECTS if one.kernel == "rms_norm")
    subject = replace(subject, shapes=subject.shapes[1:2])
    first = {one.operator: one for one in reversed(wrong_kernels(subject))}
    path = tmp_path / "wrong.py"
    wrong = list(first.values())
    write_file(subject, wrong, path)
    counted = [
        one
        for one, reason in zip(wrong, tell_apart(subject, wrong, path), strict=True)
        if not reason
    ]
    assert len(counted) >= 5
    write_file(subject, counted, path)
    verdicts = CommandLine(tmp_path).run_json("test", "wrong.py")["verdicts"]
    passed = [one["testcase"] for one in verdicts if one["outcome"] == "passed"]
    assert passed == ["rms_norm__right"]
    assert len(verdicts) == len(counted) + 1
