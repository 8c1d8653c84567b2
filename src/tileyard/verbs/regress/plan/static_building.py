"""The verb ``regress`` without a device: builds kernels on two sides in turn, reusing no build or answer."""

from collections.abc import Sequence

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.base.events import RunStarted
from tileyard.base.model import Case
from tileyard.engine.yard import Workplace
from tileyard.service.bench import Bench
from tileyard.service.runs import Ending, Plan
from tileyard.verbs.regress.options.start import StartRegress
from tileyard.verbs.regress.plan.side_kernels import SideKernels, open_sides
from tileyard.verbs.regress.plan.static import compare_sides
from tileyard.verbs.regress.result.timed import Regression
from tileyard.verbs.tune.plan.sweep import Sweep


async def open_rounds(start: StartRegress, bench: Bench) -> Plan[Regression]:
    """Plan all rounds. Kernels that cannot even be begun are in the result, too, with the reason."""
    authors, base, head = await open_sides(start, bench, recall=False)
    rounds = [_take_turns(base.cases, head.cases, number) for number in range(start.request.rounds)]
    sweep = Sweep(*rounds)

    def fold(ending: Ending) -> Regression:
        def describe(kernels: SideKernels) -> tuple[tuple[Build, ...], ...]:
            return tuple(
                (*kernels.describe(f"{number}/{kernels.side}/", ending), *kernels.refused)
                for number in range(start.request.rounds)
            )

        names = (start.base.name, start.head.name)
        found = compare_sides(
            start.target, names, describe(base), describe(head), start.request.gate
        )
        return msgspec.structs.replace(found, reason=ending.reason, seconds=ending.seconds)

    return Plan(
        source=sweep,
        fold=fold,
        authors=authors,
        grounds={start.target: ()},
        begun=RunStarted(title="static", cases=len(sweep.cases)),
        workplace=Workplace(
            reuse=False,
            rebuild=True,
            compile_workers=start.request.compile_workers,
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
