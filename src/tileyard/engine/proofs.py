"""Finds, part by part, what decides the result of a case of programs, and the doubts that this is all."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.errors import TileyardError
from tileyard.base.model import BuildKey, CommandWork, Digest, GoldenKey, Step
from tileyard.base.parts import WHOLE, GoldenPart
from tileyard.engine.hosting import StepHost
from tileyard.targets.command.step_site import StepSite
from tileyard.workers.command_protocol import DigestFiles, IdentifyStep, StepIdentified
from tileyard.workers.file_digests import find_arguments
from tileyard.workers.protocol import Golden
from tileyard.workers.step_identity import USES

NO_TREE, NO_BUILD = Digest(""), BuildKey("")
EARLY = ("build", "golden")
_OF_BUILD = re.compile(r"(?<!\{)(\{\{)*\{build\}")


@dataclass(kw_only=True)
class Ground:
    """Digests of what a result rests on, by name, and the reasons why they may not be all."""

    parts: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    def key(self, what: str) -> GoldenKey:
        """The key over the parts and the doubts. The parts of a build are in its own key."""
        parts = {name: one for name, one in self.parts.items() if not name.startswith("build ")}
        return GoldenKey(digest_parts(what, canonical_json((parts, self.doubts))))


class StepGrounds:
    """Asks the step host what steps rest on; the same question only once."""

    def __init__(self, host: StepHost, threads: int) -> None:
        self._host = host
        self._threads = threads
        self._digests: dict[tuple[str, ...], asyncio.Task[str]] = {}
        self._uses: dict[str, asyncio.Task[StepIdentified]] = {}

    async def add(self, ground: Ground, title: str, step: Step, site: StepSite) -> None:
        """Add the text of a step, without the locations of its suite and Python, and its inputs."""
        told = canonical_json((step.argv, step.cwd, step.inherits, step.inherits_all))
        ground.parts[f"{title} step"] = digest_parts(site.generalize(told))
        env = {name: digest_parts(site.generalize(text)) for name, text in step.env.items()}
        if env:
            ground.parts[f"{title} env"] = canonical_json(env)
        ground.parts[f"{title} inputs"] = await self.digest_inputs(step, site)

    async def add_uses(
        self,
        ground: Ground,
        title: str,
        asked: tuple[Step, StepSite],
        made: tuple[Digest, GoldenPart, BuildKey] = (NO_TREE, WHOLE, NO_BUILD),
    ) -> None:
        """Add what a step uses outside its suite; ``made``: the golden result, its part, the build."""
        (step, site), (golden, part, build) = asked, made
        request = IdentifyStep(
            step=step,
            site=site,
            threads=self._threads,
            is_early=title in EARLY,
            golden=golden,
            part=part,
            build=build,
        )
        key = canonical_json(
            msgspec.structs.replace(request, part=WHOLE)
        )  # what is found holds for all parts
        if key not in self._uses:
            self._uses[key] = asyncio.create_task(self._host.ask(request))
        try:
            found = await asyncio.shield(self._uses[key])
        except TileyardError:  # after a failure for one case, the next case asks again
            self._uses.pop(key, None)
            raise
        ground.parts[f"{title} uses"] = found.uses
        ground.doubts += [f"{title} step: {doubt}" for doubt in found.doubts]

    async def digest_inputs(self, step: Step, site: StepSite) -> str:
        """A digest of the files that a step names as its inputs, and of the files among its arguments."""
        found = find_arguments(step, Path(site.suite))
        return await self.digest_files(tuple(dict.fromkeys((*step.inputs, *found))), site)

    async def digest_files(self, patterns: tuple[str, ...], site: StepSite) -> str:
        """A digest of the files of a suite that match these patterns."""
        if not patterns:
            return site.tree
        asked = (site.tree, site.suite, *patterns)
        if asked not in self._digests:
            self._digests[asked] = asyncio.create_task(self._ask_for_files(site, patterns))
        try:
            return await asyncio.shield(self._digests[asked])
        except TileyardError:  # after a failure for one case, the next case asks again
            self._digests.pop(asked, None)
            raise

    async def _ask_for_files(self, site: StepSite, patterns: tuple[str, ...]) -> str:
        request = DigestFiles(folder=site.suite, patterns=patterns)
        reply = await self._host.ask(request)
        return digest_parts(reply.digest, site.tree)


def list_late_steps(work: CommandWork) -> dict[str, Step]:
    """The steps that run after the build, by name."""
    hot = None if work.hot is None else work.hot.step
    check_hot = None if work.check_hot is None else work.check_hot.step
    steps = {"run": work.run, "hot": hot, "check": work.check, "hot check": check_hot}
    return {title: step for title, step in steps.items() if step is not None}


def uses_build(step: Step) -> bool:
    """Whether a step can be looked at only once its case is built."""
    texts = (*step.argv, *step.env.values(), step.cwd, *(step.runs or ()))
    return any(_OF_BUILD.search(text) for text in (*texts, *(t for v in step.versions for t in v)))


def ground_of(golden: Golden) -> Ground:
    """The ground of a prepared case."""
    return Ground(parts=dict(golden.parts), doubts=list(golden.doubts))


def put_ground(golden: Golden, ground: Ground, *, is_partial: bool) -> Golden:
    """A golden result with what its case rests on, and the resulting key."""
    return msgspec.structs.replace(
        golden,
        key=ground.key("case"),
        parts=ground.parts,
        doubts=tuple(dict.fromkeys(ground.doubts)),
        is_partial=is_partial,
    )


# ---- changes ----------------------------------------------------------------------------------


def describe_change(before: Golden, now: Golden, objects: ObjectStore) -> tuple[str, ...]:
    """The parts that differ from those with which a case passed."""
    changed, variables = [], dict[str, list[str]]()
    for name in _find_different(before.parts, now.parts):
        old, new = before.parts.get(name, ""), now.parts.get(name, "")
        inner = []
        if name.endswith(" env"):
            env = [decode_json(one or "{}", dict[str, str]) for one in (old, new)]
            for variable in _find_different(*env):
                variables.setdefault(variable, []).append(name.removesuffix(" env"))
            continue
        if name.endswith(" uses"):
            uses = [_read_uses(one, objects) for one in (old, new)]
            inner = [f"{name[:-5]} step: {part}" for part in _find_different(*uses)]
        changed += inner or [name]
    told = []
    for variable, (*titles, last) in variables.items():
        which = f"{', '.join(titles)} and {last} steps" if titles else f"{last} step"
        told.append(f"variable {variable} of the {which}")
    return (*changed, *told)


def _find_different(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    names: Iterable[str] = dict.fromkeys((*one, *other))
    return [name for name in names if one.get(name, "") != other.get(name, "")]


def _read_uses(digest: str, objects: ObjectStore) -> dict[str, str]:
    data = objects.get_record(USES, digest) if digest else None
    return {} if data is None else decode_json(data, dict[str, str])
