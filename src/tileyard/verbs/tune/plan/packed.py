"""The verb ``tune`` of a bundle: a study of configs that were built elsewhere."""

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_manifest import Expected
from tileyard.artifacts.bundles import open_bundle
from tileyard.artifacts.keys import canonical_json
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.errors import BundleError, UsageError
from tileyard.base.model import Case, KernelWork, Record, TimingPolicy
from tileyard.engine.programs import Programs
from tileyard.service.bench import HERE, Bench
from tileyard.service.choosing import choose_devices, require_timed
from tileyard.service.runs import Plan
from tileyard.targets.registry import find_needs
from tileyard.verbs.test.plan.packed import PackedSuite, check_suite, unpack_suite
from tileyard.verbs.tune.options.tune import StartTune, TuneRequest
from tileyard.verbs.tune.plan.space import OpenSpace, check_numbers, choose_strategy
from tileyard.verbs.tune.plan.strategies.points import Points
from tileyard.verbs.tune.plan.tuning import plan_study
from tileyard.verbs.tune.result.records import StudyResult
from tileyard.workers.protocol import RunEntry


class PackedSpace(Record):
    """What an author knows of a kernel and no case has, as in an OpenSpace; ``file`` has no folders."""

    file: str = ""
    flops: float = 0.0
    timing: TimingPolicy | None = None
    run_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class OpenPacked:
    """The space, the target of its configs, and what a runner needs for each, by the config's text."""

    space: OpenSpace
    target: str
    entries: dict[str, RunEntry]

    def find(self, _programs: Programs | None, case: Case) -> RunEntry:
        """See ``Plan.packed``."""
        entry = self.entries[canonical_json(case.config)]
        return msgspec.structs.replace(entry, case=case.key)


async def open_packed_study(start: StartTune, bench: Bench) -> Plan[StudyResult]:
    """Open the bundle, and plan a study as of its kernel's file, with no author and no build. Raises
    UsageError, BundleError, or IncompatibleError for a bundle that does not fit this host.
    """
    objects = ObjectStore(bench.settings.make_home() / "objects")
    expected = Expected(kind="selection")
    bundle = open_bundle(Path(start.bundle), objects, expected, accept=check_suite)
    suite = unpack_suite(bundle.cases, objects)
    packed = open_packed(suite, bundle.manifest.details, start.request, start.bundle)
    timing = start.request.timing
    if (timing.flush_l2 or timing.graph) and not find_needs(packed.target).is_timed_by_policy:
        raise UsageError(f"--flush-l2 and --graph are for GPUs, and not for {packed.target}")
    require_timed(packed.target)
    start = msgspec.structs.replace(start, target=packed.target)
    devices = choose_devices(start.devices, packed.target, bench.settings)
    side = msgspec.structs.replace(HERE, stored=start.bundle)
    authors = bench.make_authors(devices=devices, sides=(side,))
    await packed.space.draw(1)
    plan = plan_study(start, bench, devices, authors, packed.space)
    return replace(plan, packed=packed.find)


def open_packed(packed: PackedSuite, details: str, request: TuneRequest, place: str) -> OpenPacked:
    """The space of the bundle at ``place``, with its ``details``; no config is drawn yet.

    Raises UsageError if the bundle contains anything but configs of one kernel with one set of arguments,
    and BundleError.
    """
    check_numbers(request)
    works = {case.id: case.work for case in packed.suite.cases}
    kernels = {name: work for name, work in works.items() if isinstance(work, KernelWork)}
    subjects = {
        canonical_json((work.kernel, work.arguments, packed.targets.get(name)))
        for name, work in kernels.items()
    }
    if len(kernels) != len(works) or len(subjects) != 1:
        raise UsageError(
            f"{place} does not hold the configs of one kernel for one shape and target",
            "`tileyard compile FILE::NAME --all-configs -o` packs them",
        )
    first = next(iter(kernels))
    work = kernels[first]
    try:
        known = decode_json(details.encode(), PackedSpace) if details else PackedSpace()
        entries = {canonical_json(one.config): packed.entries[id_] for id_, one in kernels.items()}
        target = packed.targets[first]
    except (msgspec.DecodeError, KeyError) as error:
        raise BundleError(f"{place} holds no space: {error}") from None
    points = Points({}, [one.config for one in kernels.values()])
    space = OpenSpace(
        kernel=work.kernel,
        arguments=work.arguments,
        size=len(kernels),
        flops=known.flops,
        tolerance=work.tolerance,
        timing=known.timing,
        run_s=known.run_s,
        file=known.file,
        wanted=request.trials,
        points=points,
        strategy=choose_strategy(request, points),
    )
    return OpenPacked(space=space, target=target, entries=entries)
