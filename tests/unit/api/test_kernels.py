"""Which device a loaded kernel runs on, and where kernels are looked up."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tileyard
from tileyard.api import kernels
from tileyard.base.errors import BundleError, UsageError
from tileyard.base.settings import Settings
from tileyard.store.trials import open_store


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


def test_an_unknown_trial_names_the_directory_that_was_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder from which nothing was tuned gets no data directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TILEYARD_HOME", raising=False)
    home = tmp_path / ".tileyard"
    with pytest.raises(UsageError, match=f"no trial r.1: nothing is recorded in {home} "):
        tileyard.load("r.1")
    assert not home.exists()
    with open_store(tmp_path / "other"):
        pass
    with pytest.raises(UsageError, match=f"no trial in {tmp_path}/other has an id"):
        tileyard.load("r.1", home="other")


def test_a_bundle_that_is_not_there_is_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its name says what is meant, and so does a path."""
    monkeypatch.chdir(tmp_path)
    for named in ("gemm.tyb", "gemm.tyb::block=1", Path("gemm")):
        with pytest.raises(BundleError, match="cannot read the bundle gemm"):
            tileyard.load(named)
