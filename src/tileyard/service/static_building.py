"""Building all kernels of a file for a comparison, inside the engine process of one side."""

import asyncio

import msgspec

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.clock import SystemClock
from tileyard.engine.authors import Author
from tileyard.engine.yard import Yard
from tileyard.errors import KernelFileError, UsageError
from tileyard.events import RunStarted, StopReason
from tileyard.model import Case, KernelInfo, Outcome, Trial
from tileyard.regress.static import KernelBuild, SideBuild
from tileyard.service.conversation import Conversation
from tileyard.service.messages import StartStatic
from tileyard.service.naming import claim_run_name
from tileyard.service.sweeping import build_cases, sweep_slots
from tileyard.settings import Settings
from tileyard.store.trials import TrialStore
from tileyard.targets.cuda.records import read_reported
from tileyard.tuning.request import ALL_CONFIGS, TuneRequest
from tileyard.tuning.space import ASK_LIMIT_S, open_space
from tileyard.tuning.sweep import WELL_BUILT, Sweep, make_cases
from tileyard.workers.protocol import DescribeKernels, Failed, Kernels


class StaticBuilding:
    """One round of one side. Nothing that was built or answered before is used."""

    def __init__(
        self, start: StartStatic, settings: Settings, author: Author, conversation: Conversation
    ) -> None:
        self._start = start
        self._settings = settings
        self._author = author
        self._conversation = conversation
        self._clock = SystemClock()
        self._objects = ObjectStore(settings.home / "objects")
        self._compiler = ""

    async def run(self, stopping: asyncio.Event) -> SideBuild:
        """Build everything. What cannot even be begun is in the result, too, with the reason.

        Raises KernelFileError where the file cannot be read, and what the target refuses.
        """
        cases: list[Case] = []
        refused: list[KernelBuild] = []
        for info in await self._find_kernels():
            for shape in info.shapes or ("",):
                try:
                    cases += await self._open(info, shape)
                except (UsageError, KernelFileError) as error:
                    name = f"{info.name}/{shape}" if shape else info.name
                    build = KernelBuild(case=name, outcome=Outcome.NOT_RUN, message=str(error))
                    refused.append(build)
        sweep = Sweep(cases)
        reason = await self._build(sweep, stopping)
        built = [self._describe(case, sweep.trials.get(case.id)) for case in sweep.cases]
        return SideBuild(kernels=(*built, *refused), compiler=self._compiler, reason=reason)

    async def _find_kernels(self) -> tuple[KernelInfo, ...]:
        described = await self._author.ask(DescribeKernels(), ASK_LIMIT_S)
        if isinstance(described, Failed):
            raise KernelFileError(described.message)
        if not isinstance(described, Kernels):
            raise AssertionError(f"an author described its kernels with {described}")
        wanted = self._start.kernel
        kernels = tuple(one for one in described.kernels if wanted in ("", one.name))
        if not kernels:
            raise KernelFileError(
                f"there is no kernel {wanted!r}" if wanted else "it holds no kernel"
            )
        return kernels

    async def _open(self, info: KernelInfo, shape: str) -> tuple[Case, ...]:
        request = TuneRequest(kernel=info.name, shape=shape, trials=ALL_CONFIGS)
        space = await open_space(self._author, request)
        if not self._start.all_configs:
            space = msgspec.structs.replace(space, configs=space.configs[:1])
        folder = "/".join(filter(None, (info.name, shape, "")))
        return make_cases(space, self._start.limits, f"{folder}/")

    async def _build(self, sweep: Sweep, stopping: asyncio.Event) -> StopReason:
        with TrialStore.open(self._settings.make_home()) as store:
            yard = Yard(
                settings=self._settings,
                store=store,
                objects=self._objects,
                author=self._author,
                target=self._start.target,
                devices=sweep_slots(self._settings),
                listeners=[self._conversation.tell_event],
                reuse=False,
                compile_workers=self._start.compile_workers,
                group_size=1,  # each kernel has a build time of its own
                golden=False,
                clock=self._clock,
            )
            begin = RunStarted(
                run=claim_run_name(self._settings.home, store),
                at=self._clock.wall_s(),
                title=self._start.title,
                target=self._start.target,
                devices=(),
                cases=len(sweep.cases),
            )
            return (await build_cases(sweep, yard, begin, stopping)).reason

    def _describe(self, case: Case, trial: Trial | None) -> KernelBuild:
        if trial is None:
            return KernelBuild(case=case.id, outcome=Outcome.NOT_RUN, message="never begun")
        if trial.outcome not in WELL_BUILT:
            return KernelBuild(case=case.id, outcome=trial.outcome, message=trial.message)
        artifact = find_artifact(trial.keys.build, self._objects)
        details = read_reported("" if artifact is None else artifact.manifest.details)
        self._compiler = self._compiler or details.compiler
        return KernelBuild(
            case=case.id,
            outcome=Outcome.PASSED,
            build_s=trial.build_s,
            resources=details.resources,
        )
