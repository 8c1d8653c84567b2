"""Which device a loaded kernel runs on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tileyard.api import kernels
from tileyard.settings import Settings


@pytest.mark.parametrize(
    ("target", "given", "expected"),
    [
        ("cpu", "", "cpu:0"),
        ("cuda:sm_90a", "", "cuda:0"),
        ("cuda:sm_90a", "cuda:3", "cuda:3"),
        ("scripted", "", "cpu:0"),
    ],
)
def test_a_kernel_runs_where_its_target_does(
    target: str, given: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a device is named."""
    loaded = SimpleNamespace(as_callable=lambda: len)
    made = SimpleNamespace(load=lambda artifact, device: loaded if device == expected else None)
    monkeypatch.setattr(kernels, "parse_device", lambda name, settings: name)
    monkeypatch.setattr(kernels, "require_fit", lambda target, device: None)
    monkeypatch.setattr(kernels, "make_target", lambda name, plugins: made)
    settings = Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,))
    assert kernels.make_callable(cast(Any, None), target, settings, given, {}) is len
