"""Runners whose driver library is stubbed: how errors of a GPU become outcomes, and who goes on.

Nothing here runs on a GPU. Engine's slot, runner, keeper and probe are real processes.
"""

import asyncio
import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from tests.gpu.bare_kernels import publish_bare
from tests.gpu.conftest import stubbed

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.clock import Clock
from tileyard.base.model import (
    Batch,
    Case,
    Device,
    GoldenKey,
    KernelWork,
    Limits,
    TensorSpec,
    TimingPolicy,
)
from tileyard.base.settings import Settings
from tileyard.devices.locks import prepare_locks
from tileyard.engine.judge import HandedOver
from tileyard.engine.runners import RunnerSlot
from tileyard.workers.protocol import CaseRan, Golden, RunEntry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed"
    ),
]
DEADLINE_S = 60.0
BRIEF = TimingPolicy(max_samples=12, warmup_ns=0, min_sample_ns=1)


@dataclass
class Runs:
    """Runs batches on a device ``cuda:0`` until every case is answered, and keeps the answers."""

    folder: Path
    stub: Path
    bare: Path
    answers: dict[str, CaseRan] = field(default_factory=dict)
    timing: TimingPolicy = BRIEF
    specs: tuple[TensorSpec, ...] = ()

    def began(self, case: str) -> None:
        """A case began."""

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """A case was answered for."""
        assert reply.case not in self.answers
        self.answers[reply.case] = reply

    def run(self, *names: str, run_s: float = 60.0, **variables: str) -> list[tuple[str, str]]:
        """Outcome and message of each case; a case is named for its artifact and a number."""
        own = {f"STUB_CUDA_{name}": value for name, value in variables.items()}
        device = Device(
            name="cuda:0",
            kind="cuda",
            identity="stub",
            locks=(str(self.folder / "locks" / "gpu.lock"),),
            env=stubbed(self.stub, self.folder / "driver.log", own),
            probe=("sh", "-c", f"echo probed >> {self.folder / 'probes'}"),
        )
        prepare_locks(device)
        site = SimpleNamespace(
            settings=Settings(home=self.folder, lock_dir=self.folder / "locks", cores=(0,)),
            home=self.folder,
            queue_limit_s=30.0,
            clock=Clock(),
            handed_over=HandedOver(),
            grounds={},
            title="run",
        )
        cases = [f"{number}-{name}" for number, name in enumerate(names)]
        entries = {case: self._entry(case) for case in cases}
        batch = Batch(
            id="batch",
            cases=tuple(
                Case(
                    id=case,
                    work=KernelWork(kernel="k"),
                    target="cuda:sm_90a",
                    limits=Limits(run_s=run_s),
                    timing=self.timing,
                )
                for case in cases
            ),
        )

        async def main() -> None:
            slot = RunnerSlot(cast(Any, site), device)
            while left := [entry for case, entry in entries.items() if case not in self.answers]:
                await slot.acquire(4 << 30, lambda _: None)
                await slot.run(batch, left, self)
            await slot.release()

        asyncio.run(asyncio.wait_for(main(), DEADLINE_S))
        return [(self.answers[case].outcome.value, self.answers[case].message) for case in cases]

    def _entry(self, case: str) -> RunEntry:
        objects = ObjectStore(self.folder / "objects")
        name = case.partition("-")[2]
        shape = (1000,) if name == "scale" else (1000, 64)
        given = put_array(objects, np.ones(shape, np.float32))
        return RunEntry(
            case=case,
            build=publish_bare(name, "sm_90a", self.bare / f"{name}-sm_90a.cubin", objects),
            golden=Golden(key=GoldenKey(""), inputs=(given,), outputs=()),
            specs=self.specs,
            scalars=(0.5, 1) if name == "scale" else (),
            log=f"logs/{case}.log",
        )


@pytest.fixture
def runs(stub: Path, bare: Path, tmp_path: Path) -> Runs:
    """A store, and a device with locks of its own."""
    return Runs(tmp_path, stub, bare)


def test_a_case_that_takes_the_context_is_blamed_alone(runs: Runs) -> None:
    """Driver stubbed: its error has CUDA's name, the device is probed, the rest runs in a fresh runner."""
    found = runs.run("mapped", "scale", "mapped", FAULT="scale_second:700")
    message = "scale: CUDA_ERROR_ILLEGAL_ADDRESS (cuStreamSynchronize)"
    expected = [("unchecked", ""), ("runtime_error", message), ("unchecked", "")]
    assert found == expected
    leases = [answer.lease for answer in runs.answers.values()]
    assert leases[0] == leases[1] < leases[2]
    assert (runs.folder / "probes").read_text() == "probed\n"
    assert runs.answers["2-mapped"].measurement is not None


def test_a_kernel_that_never_ends_is_killed_at_its_limit(runs: Runs) -> None:
    """Driver stubbed: whoever waits for the kernel waits for ever; the next case has a fresh runner."""
    found = runs.run("scale", "mapped", run_s=3.0, HANG="scale_second")
    assert [outcome for outcome, _ in found] == ["timeout", "unchecked"]
    expected = "ran past its run limit of 3 s and was killed with"
    assert found[0][1].startswith(expected)


def test_an_artifact_that_the_device_has_no_memory_for(runs: Runs) -> None:
    """Driver stubbed: it is out_of_memory in one line, and the runner goes on with what fits."""
    found = runs.run("mapped", "scale", FREE="100000")
    assert [outcome for outcome, _ in found] == ["out_of_memory", "unchecked"]
    expected = "the kernel's arrays take 0.7354 MiB, stub device, runs nothing has 0.09537 MiB left"
    assert found[0][1] == expected


def test_an_artifact_for_another_device_is_a_runtime_error(runs: Runs) -> None:
    """Driver stubbed: what nobody could know before is said by the runner, in one line."""
    found = runs.run("scale", ARCH="80")
    ((outcome, message),) = found
    expected = (
        "the artifact is for sm_90a and runs on devices of capability 9.0; stub device, runs "
        "nothing has 8.0"
    )
    assert (outcome, message) == ("runtime_error", expected)


def test_the_policy_of_a_case_says_how_it_is_timed(runs: Runs) -> None:
    """Driver stubbed: samples are graphs that are replayed, and each finds a cache that was written over."""
    runs.timing = msgspec.structs.replace(runs.timing, graph=True, flush_l2=True)
    assert runs.run("scale") == [("unchecked", "")]
    told = (runs.folder / "driver.log").read_text().splitlines()
    expected = "replay 2"
    assert expected in told
    assert str(2 << 20) in {line.removeprefix("fill ") for line in told}


def test_what_a_kernel_never_writes_is_seen(runs: Runs) -> None:
    """Driver stubbed: no kernel writes, so a further run differs, which without a reference is only said."""
    runs.specs = tuple(
        TensorSpec(name=name, dtype="float32", shape=(1000,), role=role)
        for name, role in (("A", "in"), ("B", "out"))
    )
    ((outcome, message),) = runs.run("scale")
    assert outcome == "unchecked"
    assert message.startswith("1000 of 1000 elements of B depend on what B held before the run")
    assert runs.answers["0-scale"].measurement is not None
