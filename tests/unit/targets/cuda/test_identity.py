"""What the target is made of, and what of that cannot be used together."""

import pytest

from tileyard.base.errors import ToolMissingError
from tileyard.targets.cuda import target
from tileyard.targets.cuda.nvrtc import nvrtc_version
from tileyard.targets.cuda.packages import headers_version
from tileyard.targets.cuda.target import CudaTarget


def test_what_is_installed_goes_together() -> None:
    """NVRTC and CUDA's headers come from packages of one release."""
    expected = nvrtc_version()
    assert headers_version() == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((12, 9), "NVRTC is of CUDA 12.9, and CUDA's headers are of 13.0"),
        ((13, 7), "NVRTC is of CUDA 13.7, and CUDA's headers are of 13.0"),
    ],
)
def test_another_nvrtc_is_refused(
    version: tuple[int, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVRTC of another release than the headers is named with theirs, before anything is compiled."""
    monkeypatch.setattr(target, "nvrtc_version", lambda: version)
    with pytest.raises(ToolMissingError, match=expected):
        CudaTarget("sm_80").fingerprint()
