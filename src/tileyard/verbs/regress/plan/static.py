"""Lists the kernels of a side of a comparison: all shapes of all kernels of its files. Compares two builds
of the same kernels by the figures that compilers report: builds them, runs nothing.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.base.errors import KernelFileError, UsageError
from tileyard.base.events import RunStarted
from tileyard.base.model import INFRASTRUCTURE, Case, Device, KernelWork, Outcome
from tileyard.base.wording import count_of, shorten_path
from tileyard.engine.authors import Authors
from tileyard.engine.yard import Workplace
from tileyard.frontend.declare import KernelInfo
from tileyard.service.bench import Bench
from tileyard.service.runs import Ending, Plan
from tileyard.targets.own_sources import read_reported
from tileyard.verbs.regress.options.start import StartRegress
from tileyard.verbs.regress.plan.pairs import sort_rows
from tileyard.verbs.regress.result import (
    BUILD,
    TELLING_RATIO,
    TELLING_ROUNDS,
    BuildTimes,
    Change,
    Gate,
    Regression,
    TimedRow,
    Verdict,
    find_broken_builds,
    find_changes,
    require_reported,
)
from tileyard.verbs.tune.options import ALL_CONFIGS, TuneRequest
from tileyard.verbs.tune.plan.deciding import Sweep, make_cases
from tileyard.verbs.tune.plan.space import ASK_LIMIT_S, open_space
from tileyard.workers.protocol import DescribeKernels, Failed


class SideKernels:
    """The kernels of one side as cases to be built, and those that it cannot begin."""

    def __init__(self, start: StartRegress, side: str) -> None:
        self.cases: list[Case] = []
        self.refused: list[Build] = []
        self.side = side
        self._start = start

    @classmethod
    async def open(
        cls,
        start: StartRegress,
        files: Sequence[tuple[str, str]],
        authors: Authors,
        side: str,
        *,
        in_folders: bool,
    ) -> "SideKernels":
        """Ask the side for the kernels of these files, each with a NAME, a NAME/SHAPE or an empty name for
        all. A file that only this side cannot read is a failed kernel. ``in_folders`` puts kernels below
        their file's name. Raises UsageError if two files have a case of one name.
        """
        opened = cls(start, side)
        for file, kernel in files:
            prefix = f"{Path(file).stem}/" if in_folders else ""
            try:
                await opened._read(authors, file, kernel, prefix)
            except KernelFileError as error:
                failed = Build(
                    case=Path(file).name, outcome=Outcome.COMPILE_ERROR, message=str(error)
                )
                opened.refused.append(failed)
        owners: dict[str, str] = {}
        for case in opened.cases:
            if (
                isinstance(case.work, KernelWork)
                and owners.setdefault(case.id, case.work.file) != case.work.file
            ):
                both = " and ".join(map(shorten_path, (owners[case.id], case.work.file)))
                raise UsageError(f"both {both} have a case {case.id}", "compare them one by one")
        return opened

    async def _read(self, authors: Authors, file: str, kernel: str, prefix: str) -> None:
        described = await authors.of(self.side, file).ask(DescribeKernels(), ASK_LIMIT_S)
        if isinstance(described, Failed):
            raise KernelFileError(described.message)
        shapes = [
            (info, shape, f"{info.name}/{shape}" if shape else info.name)
            for info in described.kernels
            for shape in info.shapes or ("",)
        ]
        wanted = [one for one in shapes if kernel in ("", one[0].name, one[2])]
        if not wanted:
            raise KernelFileError(
                f"there is no kernel {kernel!r}" if kernel else "it holds no kernel"
            )
        for info, shape, name in wanted:
            try:
                self.cases += await self._open(authors, file, info, shape, f"{prefix}{name}/")
            except (UsageError, KernelFileError) as error:
                outcome = Outcome.COMPILE_ERROR
                build = Build(case=f"{prefix}{name}", outcome=outcome, message=str(error))
                self.refused.append(build)

    async def _open(
        self, authors: Authors, file: str, info: KernelInfo, shape: str, folder: str
    ) -> list[Case]:
        request = TuneRequest(kernel=info.name, shape=shape, trials=ALL_CONFIGS)
        space = await open_space(
            authors.of(self.side, file), request, targets=(self._start.target,)
        )
        await space.choose(everything=self._start.request.all_configs)
        cases = make_cases(space, file, self._start.target, self._start.request.limits, folder)
        return [msgspec.structs.replace(case, side=self.side) for case in cases]

    def describe(self, folder: str, ending: Ending) -> tuple[Build, ...]:
        """The builds of the cases below ``folder``: those of one round."""
        cases = [
            (msgspec.structs.replace(case, id=folder + case.id), case.id) for case in self.cases
        ]
        return tuple(ending.build_of(case, name) for case, name in cases)


async def open_sides(
    start: StartRegress,
    bench: Bench,
    *,
    devices: Sequence[Device] = (),
    recall: bool = True,
) -> tuple[Authors, SideKernels, SideKernels]:
    """The authors of both sides, and their kernels, which have the same names on either side."""
    sides = tuple(
        msgspec.structs.replace(side, name=name)
        for name, side in (("base", start.base), ("head", start.head))
    )
    authors = bench.make_authors(devices=devices, sides=sides, recall=recall)
    names = {Path(file).name for file, _ in (*start.base_files, *start.head_files)}
    in_folders = max(len(names), len(start.base_files), len(start.head_files)) > 1
    base, head = [
        await SideKernels.open(start, files, authors, side, in_folders=in_folders)
        for side, files in (("base", start.base_files), ("head", start.head_files))
    ]
    return authors, base, head


def compare_sides(
    target: str,
    names: tuple[str, str],
    base: Sequence[Sequence[Build]],
    head: Sequence[Sequence[Build]],
    gate: Gate,
) -> Regression:
    """Compare builds of at least one round per side, of which the first gives the figures. Raises UsageError
    for a limit on a figure that no build has.
    """
    require_reported(gate.limits, target, (*base[0], *head[0]))
    rounds = _Rounds(base, head)
    rows, notes = gate.judge(sort_rows([rounds.describe(case) for case in rounds.cases]))
    build = rounds.time_builds()
    silent = sum(map(_is_silent, (*base[0], *head[0])))
    if silent:
        notes = (f"compilers report no figures of {count_of(silent, 'build')}", *notes)
    return Regression(
        run="",
        target=target,
        device="",
        silicon="",
        base=_name_side(names[0], base[0]),
        head=_name_side(names[1], head[0]),
        margin=gate.margin,
        rows=rows,
        of="figures",
        build=build,
        broken=tuple(find_broken_builds(build, gate.limits)),
        notes=notes,
    )


def _is_silent(build: Build) -> bool:
    """Whether its compiler reports no figures."""
    return build.outcome is Outcome.PASSED and not read_reported(build.details).resources


def _name_side(name: str, builds: Sequence[Build]) -> str:
    named = (read_reported(build.details).compiler for build in builds)
    compiler = next(filter(None, named), "")
    return f"{name} ({compiler})" if compiler else name


class _Rounds:
    """All rounds of both sides by case."""

    def __init__(self, base: Sequence[Sequence[Build]], head: Sequence[Sequence[Build]]) -> None:
        self._base = [{one.case: one for one in builds} for builds in base]
        self._head = [{one.case: one for one in builds} for builds in head]
        self.cases = tuple(dict.fromkeys([*self._base[0], *self._head[0]]))

    def describe(self, case: str) -> TimedRow:
        """The row of a kernel: both sides' builds, and the figures that differ."""
        base, head = self._base[0].get(case), self._head[0].get(case)
        base_s, head_s = self._times(case)
        changes: tuple[Change, ...] = ()
        if base is not None and head is not None:
            changes = (*find_changes(base, head), *_find_build_change(base_s, head_s))
        return TimedRow(
            case=case,
            verdict=_judge(base, head, changes),
            base_message=_why_not(base),
            head_message=_why_not(head),
            changes=changes,
            base_build_s=base_s,
            head_build_s=head_s,
        )

    def time_builds(self) -> BuildTimes | None:
        """The build times of all kernels; None if both sides built no kernel in all rounds."""
        times = [self._times(case) for case in self.cases]
        both = [(base, head) for base, head in times if base and head]
        if not both:
            return None
        base_s = tuple(map(sum, zip(*(base for base, _ in both), strict=True)))
        head_s = tuple(map(sum, zip(*(head for _, head in both), strict=True)))
        if not all(base_s):
            return None
        ratios = [there / here for here, there in zip(base_s, head_s, strict=True)]
        return BuildTimes(
            base_s=base_s,
            head_s=head_s,
            ratio=statistics.median(ratios),
            low=min(ratios),
            high=max(ratios),
            is_first=len(self._base) == 1,
        )

    def _times(self, case: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """A kernel's build times without those of the first of several rounds, which fills caches."""
        counted = slice(1, None) if len(self._base) > 1 else slice(None)
        return _passed_times(self._base[counted], case), _passed_times(self._head[counted], case)


def _passed_times(rounds: Sequence[Mapping[str, Build]], case: str) -> tuple[float, ...]:
    """A kernel's build times; empty unless it was built in every round."""
    builds = [one[case] for one in rounds if case in one]
    passed = [build.build_s for build in builds if build.outcome is Outcome.PASSED]
    return tuple(passed) if len(passed) == len(rounds) else ()


def _judge(base: Build | None, head: Build | None, changes: Sequence[Change]) -> Verdict:
    there = [build for build in (base, head) if build is not None]
    failures = {build.outcome for build in there} - {Outcome.PASSED}
    if failures:
        return "not_run" if failures <= INFRASTRUCTURE | {Outcome.NOT_RUN} else "failed"
    if head is None:
        return "missing"
    if base is None:
        return "new"
    return "changed" if changes else "unchanged"


def _why_not(build: Build | None) -> str:
    """Why there is no binary; empty if there is one, or no kernel."""
    if build is None or build.outcome is Outcome.PASSED:
        return ""
    return f"{build.outcome}: {build.message}"


def _find_build_change(base_s: tuple[float, ...], head_s: tuple[float, ...]) -> Iterator[Change]:
    if min(len(base_s), len(head_s)) < TELLING_ROUNDS:
        return
    apart = max(base_s) < min(head_s) or max(head_s) < min(base_s)
    base, head = statistics.median(base_s), statistics.median(head_s)
    if apart and max(base, head) > TELLING_RATIO * min(base, head):
        yield Change(metric=BUILD, base=base, head=head)


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
