"""Chooses the build step that is run for a case of programs: one run for all targets that are not built yet.

Each target has its own key, over the step, its shared inputs and the inputs of the target alone. A build for several targets
is found later by the key of each, so that a change of one target's inputs builds that target alone.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.engine.proofs import StepGrounds
from tileyard.errors import TileyardError
from tileyard.model import CommandWork, Step
from tileyard.targets.command.step_site import StepSite
from tileyard.targets.command.target import BuildCommand

Targets = Mapping[str, Mapping[str, tuple[str, ...]]]
"""For each build step, as canonical JSON, what each needed target depends on besides the step's inputs."""
IsBuilt = Callable[[str], bool]
"""Whether a build, given as its program, is in the store."""


class ProgramBuilds:
    """The builds of one run."""

    def __init__(self, targets: Targets, grounds: StepGrounds) -> None:
        self._targets = targets
        self._grounds = grounds
        # The targets that were not built when the first case asked. This stays fixed: all these cases wait for one build.
        self._missing: dict[str, asyncio.Task[dict[str, BuildCommand]]] = {}
        self._parts: dict[str, tuple[str, ...]] = {}

    def parts_of(self, program: str) -> tuple[str, ...]:
        """The own builds of the targets that a build makes together, as programs; empty for any other build."""
        return self._parts.get(program, ())

    async def plan(
        self, work: CommandWork, step: Step, site: StepSite, uses: str, is_built: IsBuilt
    ) -> tuple[BuildCommand, BuildCommand]:
        """The build that is run for a case, and the case's own part of it. Raises TileyardError.

        ``uses`` identifies what the step uses outside of its suite.
        """
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
            return build, build
        needed = self._targets.get(canonical_json(step), {})
        inputs = needed.get(work.target, work.target_inputs)
        own = await self._narrow(build, work.target, inputs, site)
        asked = canonical_json((step, site.tree))
        if asked not in self._missing:
            finding = self._find_missing(build, needed, site, is_built)
            self._missing[asked] = asyncio.create_task(finding)
        try:
            missing = await asyncio.shield(self._missing[asked])
        except TileyardError:  # after a failure for one case, the next case asks again
            self._missing.pop(asked, None)
            raise
        if work.target not in missing or len(missing) == 1:
            return own, own
        content = digest_parts("targets", *(one.inputs for one in missing.values()))
        joint = msgspec.structs.replace(build, targets=tuple(missing), inputs=content)
        program = canonical_json(joint)
        if program not in self._parts:
            self._parts[program] = tuple(map(canonical_json, missing.values()))
        return joint, own

    async def _find_missing(
        self,
        build: BuildCommand,
        needed: Mapping[str, tuple[str, ...]],
        site: StepSite,
        is_built: IsBuilt,
    ) -> dict[str, BuildCommand]:
        """The own builds of all targets of a step that the run needs and that are not built, by target."""
        owns = {
            target: await self._narrow(build, target, needed[target], site)
            for target in sorted(needed)
        }
        return {name: own for name, own in owns.items() if not is_built(canonical_json(own))}

    async def _narrow(
        self, build: BuildCommand, target: str, inputs: tuple[str, ...], site: StepSite
    ) -> BuildCommand:
        content = build.inputs
        if inputs:
            content = digest_parts(
                "target", content, await self._grounds.digest_files(inputs, site)
            )
        return msgspec.structs.replace(build, targets=(target,), inputs=content)
