"""A verb of somebody else: two builds of one kernel race on one device until one is clearly faster."""

from collections.abc import Sequence

from tileyard.base.events import RunStarted
from tileyard.base.model import (
    Batch,
    Case,
    KernelWork,
    Measurement,
    Record,
    Side,
    TimingPolicy,
    Trial,
)
from tileyard.engine.yard import Workplace
from tileyard.service.bench import Bench
from tileyard.service.choosing import choose_devices
from tileyard.service.runs import Ending, Plan
from tileyard.service.verbs import Verb

SIDES = ("base", "head")


class Raced(Record):
    """Time of the head over that of the base, 0 where one of them failed; ``races`` were needed."""

    ratio: float
    races: int


class Race(Verb[Raced]):
    """Race the kernel ``scale`` of a file, with either of two folders on its module path."""

    file: str
    folders: tuple[str, str]

    async def open(self, bench: Bench) -> Plan[Raced]:
        """One source, two sides, one device."""
        paths = zip(SIDES, self.folders, strict=True)
        sides = [Side(name=name, variables={"PYTHONPATH": folder}) for name, folder in paths]
        devices = choose_devices((), "cpu", bench.settings)
        source = Races(self.file)
        return Plan(
            source=source,
            fold=source.fold,
            authors=bench.make_authors(devices=devices, sides=sides),
            grounds={"cpu": devices},
            begun=RunStarted(title="race"),
            workplace=Workplace(reuse=False),
        )


class Races:
    """Has both sides timed in turn; three times at most, and longer each time, until one has won."""

    def __init__(self, file: str) -> None:
        self._work = KernelWork(file=file, kernel="scale")
        self._ended: dict[str, Measurement | None] = {}
        self._asked = 0

    async def ask(self, limit: int) -> Sequence[Batch]:
        """The next race, once the one before has ended."""
        if self.done() or len(self._ended) < 2 * self._asked:
            return ()
        self._asked += 1
        cases = tuple(
            Case(id=f"{side}{self._asked}", work=self._work, side=side, timing=TimingPolicy())
            for side in SIDES
        )
        race = f"race{self._asked}"
        return (Batch(id=race, cases=cases, order="interleaved", rounds=12 * self._asked),)

    def tell(self, trial: Trial) -> None:
        """Keep how a side did."""
        self._ended[trial.case] = trial.measurement

    def done(self) -> bool:
        """One has won, one has failed, or it has been long enough."""
        base, head = (self._ended.get(f"{side}{self._asked}") for side in SIDES)
        if base is None or head is None:
            return len(self._ended) == 2 * self._asked > 0
        return self._asked == 3 or base.high_ns < head.low_ns or head.high_ns < base.low_ns

    def fold(self, ending: Ending) -> Raced:
        """What the last race says."""
        base, head = (self._ended.get(f"{side}{self._asked}") for side in SIDES)
        ratio = head.median_ns / base.median_ns if base is not None and head is not None else 0.0
        return Raced(ratio=ratio, races=self._asked)
