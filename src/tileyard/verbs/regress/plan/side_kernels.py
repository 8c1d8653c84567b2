"""Lists the kernels of a side of a comparison: all shapes of all kernels of its files."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.base.errors import KernelFileError, UsageError
from tileyard.base.model import Case, Device, KernelWork, Outcome
from tileyard.base.wording import shorten_path
from tileyard.engine.authors import Authors
from tileyard.frontend.declare import KernelInfo
from tileyard.service.bench import Bench
from tileyard.service.runs import Ending
from tileyard.verbs.regress.options.start import StartRegress
from tileyard.verbs.tune.options import ALL_CONFIGS, TuneRequest
from tileyard.verbs.tune.plan.deciding import make_cases
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
