"""The real engine on simulated devices: everything but author, kernels and devices is the product's."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.objects import ObjectStore, digest_parts
from tileyard.base.model import (
    Batch,
    Case,
    Device,
    Digest,
    Elaborated,
    GoldenKey,
    Kernel,
    KernelWork,
    Limits,
    Side,
    TensorSpec,
    TimingPolicy,
    Trial,
)
from tileyard.base.settings import Settings
from tileyard.devices.locks import prepare_locks
from tileyard.engine.authors import Authors
from tileyard.engine.driver import Driver
from tileyard.engine.yard import Yard
from tileyard.store.trials import open_store
from tileyard.testing.doubles.simulated import RIGHT, Behaviour
from tileyard.workers.protocol import (
    AnswerT,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    Golden,
    MakeGolden,
    Question,
)

PLUGINS = {
    "simulated": "tileyard.testing.doubles.simulated:SimulatedTarget",
    "grouped": "tileyard.testing.doubles.simulated:GroupedTarget",
}


class SimulatedAuthor:
    """Answers at once: a config is a ``Behaviour``, but for ``n``, which becomes a scalar argument. Configs
    that differ in ``n`` alone share their artifact, and are measured each on its own.
    """

    def __init__(self, objects: ObjectStore, cores: tuple[int, ...] = ()) -> None:
        self.cores = cores
        self._objects = objects
        self._outputs: dict[int, Digest] = {}

    async def begin(self) -> None:
        """Nothing has to be started."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Elaborate a config, or name the one reference."""
        return request.check(self._answer(request))

    def _answer(self, request: object) -> object:
        match request:
            case ElaborateConfig(kernel=name, config=config):
                told = {key: value for key, value in config.items() if key != "n"}
                behaviour = msgspec.convert(told, Behaviour)
                program = msgspec.json.encode(behaviour).decode()
                return ElaboratedConfig(
                    elaborated=Elaborated(
                        kernel=Kernel(name=name, program=program),
                        specs=(
                            TensorSpec(
                                name="out", dtype="float32", shape=(behaviour.size,), role="out"
                            ),
                        ),
                        scalars=(config.get("n", 0),),
                    )
                )
            case MakeGolden(scalars=scalars, specs=(spec,)):
                key = GoldenKey(digest_parts("simulated", *map(str, (*spec.shape, *scalars))))
                return Golden(key=key, inputs=(), outputs=(self._find_output(*spec.shape),))
            case _:
                raise AssertionError(f"a simulated author was asked {request}")

    def _find_output(self, size: int) -> Digest:
        if size not in self._outputs:
            right = np.full(size, RIGHT, dtype=np.float32)
            self._outputs[size] = put_array(self._objects, right)
        return self._outputs[size]

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

    async def ask(self, limit: int) -> Sequence[Batch]:
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
    target: str = "simulated",
) -> Iterator[Batch]:
    """A batch of one case for each config."""
    for number, config in enumerate(configs):
        case = Case(
            id=f"c{number:06d}",
            work=KernelWork(kernel="simulated", config=dict(config)),
            target=target,
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
    folder: Path,
    devices: Sequence[Device],
    cores: tuple[int, ...],
    target: str = "simulated",
    **changes: object,
) -> Iterator[Yard]:
    """A yard below ``folder`` that builds on ``cores``; ``changes`` are fields of the yard."""
    home = folder / "home"
    settings = Settings(home=home, lock_dir=folder / "locks", cores=cores, plugins=PLUGINS)
    objects = ObjectStore(home / "objects")
    with open_store(home) as store:
        yield Yard(
            settings=settings,
            store=store,
            objects=objects,
            **{
                "authors": Authors((Side(),), (), lambda side, file: SimulatedAuthor(objects)),
                "grounds": {target: tuple(devices)},
                **changes,
            },  # type: ignore[arg-type]  # fields of a yard
        )


async def drive(driver: Driver) -> None:
    """Open a run, follow it to its end, and close it, however it ends."""
    await driver.open()
    try:
        async for _ in driver.trials():
            pass
    finally:
        await driver.close()
