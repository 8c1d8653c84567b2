"""Builds Programs with the CPU target, once for each text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tileyard.artifacts.manifest import Artifact
from tileyard.base.model import Outcome
from tileyard.ir.reader import read_program
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import make_source, store_artifact

BuildText = Callable[[str], Artifact]
LoadText = Callable[..., CpuLoaded]


@pytest.fixture(scope="session")
def cpu() -> CpuTarget:
    """The target for this host, its compiler found once."""
    return CpuTarget()


@pytest.fixture(scope="session")
def build_text(cpu: CpuTarget, tmp_path_factory: pytest.TempPathFactory) -> BuildText:
    """The artifact of a Program's text."""
    known: dict[str, Artifact] = {}

    def build(text: str) -> Artifact:
        if text not in known:
            folder: Path = tmp_path_factory.mktemp("artifact")
            (verdict,) = cpu.build([make_source(read_program(text))], folder)
            assert verdict.outcome is Outcome.PASSED, verdict
            known[text] = store_artifact(cpu, verdict, folder)
        return known[text]

    return build


@pytest.fixture(scope="session")
def load_text(build_text: BuildText) -> LoadText:
    """A Program's text built and loaded on some cores, on all for none; threads are not pinned."""

    def load(text: str, cores: tuple[int, ...] = ()) -> CpuLoaded:
        return CpuLoaded(build_text(text), cores, is_pinned=False)

    return load
