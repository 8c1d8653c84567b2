"""Plans the builds of programs: one call of a build step makes all targets that are not built yet. Each
target's key covers the step, shared inputs and its own inputs: a change of those builds it alone.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from tileyard.artifacts.objects import canonical_json, digest_parts
from tileyard.base.model import BuildPart, CommandWork, Step
from tileyard.engine.proofs import StepGrounds, ask_once
from tileyard.targets.command.given import StepSite
from tileyard.targets.command.target import BuildCommand

Targets = Mapping[str, Mapping[str, BuildPart]]
"""For each build step, as canonical JSON, each needed target."""
IsBuilt = Callable[[str], bool]
"""Whether a build, given as its program, is in the store."""


class ProgramBuilds:
    """The builds of one run, each given as its program."""

    def __init__(self, targets: Targets, grounds: StepGrounds) -> None:
        self._targets = targets
        self._grounds = grounds
        self.targets = 0
        """Number of targets that were missing when they were first asked for."""
        # What is missing when the first case asks is made in one call.
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._together: dict[str, tuple[str, ...]] = {}
        self._caches: dict[str, str] = {}

    def list_together(self, program: str) -> tuple[str, ...]:
        """The builds that are made in one call with this one, itself included; empty if it is made alone."""
        return self._together.get(program, ())

    def part(self, program: str) -> None:
        """From now on make each of these builds alone."""
        for one in self.list_together(program):
            del self._together[one]

    def cache_of(self, program: str) -> str:
        """The name of the cache that a build shares with those of other targets, empty for none."""
        return self._caches.get(program, "")

    async def plan(
        self, work: CommandWork, step: Step, site: StepSite, uses: str, is_built: IsBuilt
    ) -> BuildCommand:
        """The build of a case; ``uses``: what the step uses outside its suite. Raises TileyardError."""
        build = BuildCommand(
            argv=tuple(map(site.generalize, step.argv)),
            env={n: site.generalize(text) for n, text in step.env.items()},
            cwd=site.generalize(step.cwd or site.suite),
            inputs=await self._grounds.digest_inputs(step, site),
            inherits=step.inherits,
            inherits_all=step.inherits_all,
            uses=uses,
        )
        if not work.target:
            return build
        needed = self._targets.get(canonical_json(step), {})
        part = needed.get(work.target, work.target_part)
        own = await self._narrow(build, work.target, part, site)
        asked = canonical_json((step, site.tree))
        self._caches[canonical_json(own)] = asked
        look = partial(self._find_missing, build, needed, site, is_built)
        await ask_once(self._looking, asked, look)
        return own

    async def _find_missing(
        self,
        build: BuildCommand,
        needed: Mapping[str, BuildPart],
        site: StepSite,
        is_built: IsBuilt,
    ) -> None:
        """Find the builds of all needed targets of a step that are not built; they are made together."""
        owns = [
            canonical_json(await self._narrow(build, target, needed[target], site))
            for target in sorted(needed)
        ]
        missing = tuple(own for own in owns if not is_built(own))
        self.targets += len(missing)
        if len(missing) > 1:
            self._together.update(dict.fromkeys(missing, missing))

    async def _narrow(
        self, build: BuildCommand, target: str, part: BuildPart, site: StepSite
    ) -> BuildCommand:
        content = build.inputs
        if part.inputs:
            content = digest_parts(
                "target", content, await self._grounds.digest_files(part.inputs, site)
            )
        return msgspec.structs.replace(
            build, targets=(target,), inputs=content, products=part.products
        )
