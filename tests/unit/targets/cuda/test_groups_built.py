"""Kernels built together with the real NVRTC, beside the same kernels built alone."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from tileyard.base.model import Elaborated, Outcome
from tileyard.targets.base import Source
from tileyard.targets.cuda.launching import CUBIN_FILE, Details
from tileyard.targets.cuda.nvrtc import Compiled, Nvrtc
from tileyard.targets.cuda.resources import read_cubin
from tileyard.targets.cuda.target import CudaTarget


def _build(sources: Sequence[Source], size: int, folder: Path) -> dict[str, bytes]:
    """The machine code of each kernel's own function, by symbol."""
    target = CudaTarget("sm_80")
    target.caches = folder.parent / "caches"
    target.group_size = size
    found: dict[str, bytes] = {}
    for number, build in enumerate(target.build(sources, folder)):
        assert build.outcome is Outcome.PASSED, build.printed
        (launch,) = msgspec.json.decode(build.details, type=Details).launch.launches
        functions = read_cubin((folder / str(number) / CUBIN_FILE).read_bytes())
        found |= {one.symbol: one.code for one in functions if one.symbol == launch.symbol}
    return found


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What NVRTC was given, one text for each compilation."""
    given: list[str] = []
    compile_body = Nvrtc.compile

    def note(self: Nvrtc, headers: str, body: str, flags: Sequence[str]) -> Compiled:
        given.append(body)
        return compile_body(self, headers, body, flags)

    monkeypatch.setattr(Nvrtc, "compile", note)
    return given


@pytest.mark.slow
def test_code_of_a_group_is_that_of_each_alone(
    gelu: Callable[[int, int], Elaborated], tmp_path: Path, bodies: list[str]
) -> None:
    """Two kernels in one compilation have the machine code, byte for byte, that each has by itself."""
    sources = [Source(elaborated=gelu(4096, block)) for block in (64, 256)]
    grouped = _build(sources, 2, tmp_path / "grouped")
    assert len(bodies) == 1
    expected = _build(sources, 1, tmp_path / "alone")
    assert len(bodies) == 3
    assert grouped == expected
    assert len(grouped) == 2


@pytest.mark.slow
def test_a_source_is_compiled_once(
    gelu: Callable[[int, int], Elaborated], tmp_path: Path, bodies: list[str]
) -> None:
    """Two kernels that differ in their grid alone lower to one source, which is compiled once."""
    expected = 1
    sources = [Source(elaborated=gelu(elements, 64)) for elements in (4096, 8192)]
    found = _build(sources, 1, tmp_path / "same")
    assert len(bodies) == expected
    assert len(found) == expected
