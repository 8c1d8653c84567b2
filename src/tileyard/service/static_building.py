"""The verb ``static``: kernels are built on two sides in turn. Nothing that was built or answered before is used."""

from collections.abc import Sequence

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.engine.yard import Workplace
from tileyard.events import RunStarted
from tileyard.model import Case
from tileyard.regress.static import Rounds
from tileyard.service.bench import Bench
from tileyard.service.runs import Ending, Plan
from tileyard.service.side_kernels import Asked, SideKernels
from tileyard.service.verbs import StartStatic
from tileyard.tuning.sweep import Sweep


async def open_rounds(start: StartStatic, bench: Bench) -> Plan[Rounds]:
    """Plan all rounds. What cannot even be begun is in the result, too, with the reason."""
    base = msgspec.structs.replace(start.base, name="base")
    head = msgspec.structs.replace(start.head, name="head")
    authors = bench.make_authors(sides=(base, head), recall=False)
    asked = Asked(target=start.target, all_configs=start.all_configs, limits=start.limits)
    opened = {
        side: await SideKernels.open(asked, start.files, authors, side)
        for side in (base.name, head.name)
    }
    rounds = [
        _take_turns(opened["base"].cases, opened["head"].cases, number)
        for number in range(start.rounds)
    ]
    sweep = Sweep(*rounds)

    def fold(ending: Ending) -> Rounds:
        def describe(side: str) -> tuple[tuple[Build, ...], ...]:
            kernels = opened[side]
            return tuple(
                (*kernels.describe(f"{number}/{side}/", ending), *kernels.refused)
                for number in range(start.rounds)
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
