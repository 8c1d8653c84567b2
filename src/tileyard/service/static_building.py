"""The verb ``static``: kernels are built on two sides in turn. Nothing that was built or answered before is used."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.engine.authors import Authors
from tileyard.engine.yard import Workplace
from tileyard.errors import KernelFileError, UsageError
from tileyard.events import RunStarted
from tileyard.model import Case, KernelInfo, Outcome
from tileyard.regress.static import Rounds
from tileyard.service.bench import Bench
from tileyard.service.runs import Ending, Plan
from tileyard.service.verbs import StartStatic
from tileyard.tuning.request import ALL_CONFIGS, TuneRequest
from tileyard.tuning.space import ASK_LIMIT_S, open_space
from tileyard.tuning.sweep import Sweep, make_cases
from tileyard.workers.protocol import DescribeKernels, Failed


async def open_rounds(start: StartStatic, bench: Bench) -> Plan[Rounds]:
    """Plan all rounds. What cannot even be begun is in the result, too, with the reason."""
    base = msgspec.structs.replace(start.base, name="base")
    head = msgspec.structs.replace(start.head, name="head")
    authors = bench.make_authors(sides=(base, head), recall=False)
    opened = {side: await _Opened.of(start, authors, side) for side in (base.name, head.name)}
    rounds = [
        _take_turns(opened["base"].cases, opened["head"].cases, number)
        for number in range(start.rounds)
    ]
    sweep = Sweep(*rounds)

    def fold(ending: Ending) -> Rounds:
        def describe(side: str) -> tuple[tuple[Build, ...], ...]:
            return tuple(
                opened[side].describe(f"{number}/{side}/", ending) for number in range(start.rounds)
            )

        return Rounds(base=describe("base"), head=describe("head"), reason=ending.reason)

    return Plan(
        source=sweep,
        fold=fold,
        authors=authors,
        grounds={start.target: ()},
        begun=RunStarted(title="static", cases=len(sweep.cases)),
        workplace=Workplace(
            reuse=False,
            rebuild=True,
            compile_workers=start.compile_workers,
            group_size=1,  # each kernel has a build time of its own
        ),
    )


def _take_turns(base: Sequence[Case], head: Sequence[Case], number: int) -> list[Case]:
    """The cases of both sides for one round: kernel by kernel, either side first in turn."""
    pairs = [(side, case) for cases, side in ((base, 0), (head, 1)) for case in cases]
    place = {case.id: index for cases in (base, head) for index, case in enumerate(cases)}
    ordered = sorted(pairs, key=lambda p: (place[p[1].id], (p[0] + place[p[1].id] + number) % 2))
    return [
        msgspec.structs.replace(case, id=f"{number}/{case.side}/{case.id}") for _, case in ordered
    ]


class _Opened:
    """The kernels of one side, and those that it cannot begin."""

    def __init__(self, start: StartStatic, side: str) -> None:
        self.cases: list[Case] = []
        self._start = start
        self._side = side
        self._refused: list[Build] = []

    @classmethod
    async def of(cls, start: StartStatic, authors: Authors, side: str) -> "_Opened":
        """Ask the side what it has. A file that only this side cannot read is a kernel that failed."""
        opened = cls(start, side)
        for file, kernel in start.files:
            prefix = f"{Path(file).stem}/" if len(start.files) > 1 else ""
            try:
                await opened._read(authors, file, kernel, prefix)
            except KernelFileError as error:
                failed = Build(
                    case=Path(file).name, outcome=Outcome.COMPILE_ERROR, message=str(error)
                )
                opened._refused.append(failed)
        return opened

    async def _read(self, authors: Authors, file: str, kernel: str, prefix: str) -> None:
        described = await authors.of(self._side, file).ask(DescribeKernels(), ASK_LIMIT_S)
        if isinstance(described, Failed):
            raise KernelFileError(described.message)
        kernels = [one for one in described.kernels if kernel in ("", one.name)]
        if not kernels:
            raise KernelFileError(
                f"there is no kernel {kernel!r}" if kernel else "it holds no kernel"
            )
        for info in kernels:
            for shape in info.shapes or ("",):
                name = f"{info.name}/{shape}" if shape else info.name
                try:
                    self.cases += await self._open(authors, file, info, shape, f"{prefix}{name}/")
                except (UsageError, KernelFileError) as error:
                    build = Build(
                        case=f"{prefix}{name}", outcome=Outcome.NOT_RUN, message=str(error)
                    )
                    self._refused.append(build)

    async def _open(
        self, authors: Authors, file: str, info: KernelInfo, shape: str, folder: str
    ) -> list[Case]:
        request = TuneRequest(kernel=info.name, shape=shape, trials=ALL_CONFIGS)
        space = await open_space(authors.of(self._side, file), request)
        await space.choose(everything=self._start.all_configs)
        cases = make_cases(space, file, self._start.target, self._start.limits, folder)
        return [msgspec.structs.replace(case, side=self._side) for case in cases]

    def describe(self, folder: str, ending: Ending) -> tuple[Build, ...]:
        """What came of the cases below ``folder``: those of one round."""
        cases = [
            (msgspec.structs.replace(case, id=folder + case.id), case.id) for case in self.cases
        ]
        return (*(ending.build_of(case, name) for case, name in cases), *self._refused)
