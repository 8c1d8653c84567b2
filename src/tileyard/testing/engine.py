"""The real engine on simulated devices: everything but author, kernels and devices is the product's."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.keys import digest_parts
from tileyard.artifacts.objects import ObjectStore
from tileyard.devices.locks import prepare_locks
from tileyard.engine.driver import Driver
from tileyard.engine.yard import Yard
from tileyard.model import (
    Batch,
    Case,
    Device,
    Digest,
    Elaborated,
    GoldenKey,
    Kernel,
    Limits,
    TensorSpec,
    TimingPolicy,
    Trial,
)
from tileyard.settings import Settings
from tileyard.store.trials import TrialStore
from tileyard.testing.simulated import RIGHT, Behaviour
from tileyard.workers.protocol import (
    AuthorReply,
    AuthorRequest,
    ElaborateConfig,
    ElaboratedConfig,
    Golden,
    MakeGolden,
)

PLUGINS = {
    "simulated": "tileyard.testing.simulated:SimulatedTarget",
    "grouped": "tileyard.testing.simulated:GroupedTarget",
}
SPEC = TensorSpec(name="out", dtype="float32", shape=(1,), role="out")


class SimulatedAuthor:
    """Answers at once: a config is a ``Behaviour``, but for ``n``, which becomes a scalar argument.

    Configs that differ in ``n`` alone share their artifact, and are measured each on its own.
    """

    lanes = 1

    def __init__(self, objects: ObjectStore, cores: tuple[int, ...] = ()) -> None:
        self.cores = cores
        self._output: Digest = put_array(objects, np.full(1, RIGHT, dtype=np.float32))

    async def begin(self) -> None:
        """Nothing has to be started."""

    async def ask(self, request: AuthorRequest, limit_s: float) -> AuthorReply:
        """Elaborate a config, or name the one reference."""
        match request:
            case ElaborateConfig(kernel=name, config=config):
                told = {key: value for key, value in config.items() if key != "n"}
                behaviour = msgspec.convert(told, Behaviour)
                program = msgspec.json.encode(behaviour).decode()
                return ElaboratedConfig(
                    elaborated=Elaborated(
                        kernel=Kernel(name=name, program=program),
                        specs=(SPEC,),
                        scalars=(config.get("n", 0),),
                    )
                )
            case MakeGolden(scalars=scalars):
                key = GoldenKey(digest_parts("simulated", *map(str, scalars)))
                return Golden(key=key, inputs=(), outputs=(self._output,))
            case _:
                raise AssertionError(f"a simulated author was asked {request}")

    async def close(self) -> None:
        """Nothing was started."""


class FixedSource:
    """These batches, in this order. ``trials`` are what they came to."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self._planned = self._told = 0
        self._is_dry = False
        self.trials: list[Trial] = []
        self.keep = True

    def ask(self, limit: int) -> Sequence[Batch]:
        """The next batches."""
        found = [batch for _, batch in zip(range(limit), self._batches, strict=False)]
        self._is_dry = len(found) < limit
        self._planned += sum(len(batch.cases) for batch in found)
        return found

    def tell(self, trial: Trial) -> None:
        """Keep a trial."""
        self._told += 1
        if self.keep:
            self.trials.append(trial)

    def done(self) -> bool:
        """All was told."""
        return self._is_dry and self._told == self._planned


def plan_cases(
    configs: Iterator[Mapping[str, bool | int | float | str]],
    limits: Limits | None = None,
    timing: TimingPolicy | None = None,
) -> Iterator[Batch]:
    """A batch of one case for each config."""
    for number, config in enumerate(configs):
        case = Case(
            id=f"c{number:06d}",
            kernel="simulated",
            config=dict(config),
            limits=limits or Limits(memory_bytes=0),
            timing=timing,
        )
        yield Batch(id=case.id, cases=(case,))


def simulated_devices(count: int, lock_dir: Path) -> tuple[Device, ...]:
    """Devices that own no core, with their locks made ready."""
    devices = tuple(
        Device(
            name=f"board:{number}",
            kind="board",
            identity="simulated board",
            locks=(str(lock_dir / f"board-{number}.lock"),),
        )
        for number in range(count)
    )
    for device in devices:
        prepare_locks(device)
    return devices


@contextmanager
def open_simulated_yard(
    folder: Path, devices: Sequence[Device], cores: tuple[int, ...], **changes: object
) -> Iterator[Yard]:
    """A yard below ``folder`` that builds on ``cores``; ``changes`` are fields of the yard."""
    home = folder / "home"
    settings = Settings(home=home, lock_dir=folder / "locks", cores=cores, plugins=PLUGINS)
    objects = ObjectStore(home / "objects")
    with TrialStore.open(home) as store:
        fields: dict[str, object] = {"target": "simulated", **changes}
        yield Yard(
            settings=settings,
            store=store,
            objects=objects,
            author=SimulatedAuthor(objects),
            devices=tuple(devices),
            **fields,  # type: ignore[arg-type]  # fields of a yard
        )


async def drive(driver: Driver) -> None:
    """Open a run, follow it to its end, and close it, however it ends."""
    await driver.open()
    try:
        async for _ in driver.trials():
            pass
    finally:
        await driver.close()
