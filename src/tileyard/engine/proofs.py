"""Finds what decides the result of a case of programs, and what is doubtful: the base of proofs."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Hashable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tileyard.artifacts.digests import find_arguments
from tileyard.artifacts.footprint import USES, Footprint
from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.base.errors import TileyardError
from tileyard.base.model import BuildKey, CommandWork, Digest, GoldenKey, Step
from tileyard.base.parts import WHOLE, GoldenPart
from tileyard.engine.hosting import StepHost
from tileyard.targets.command.step_site import StepSite
from tileyard.workers.command_protocol import DigestFiles, IdentifyStep, StepIdentified
from tileyard.workers.protocol import Golden

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
NO_TREE, NO_BUILD = Digest(""), BuildKey("")
EARLY = ("build", "golden")
_OF_BUILD = re.compile(r"(?<!\{)(\{\{)*\{build\}")


async def ask_once(
    known: dict[K, asyncio.Task[T]], key: K, ask: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """The answer to a question, asked once; after a failure for one case, the next case asks again."""
    if key not in known:
        known[key] = asyncio.create_task(ask())
    try:
        return await asyncio.shield(known[key])
    except (TileyardError, OSError):
        known.pop(key, None)
        raise


class StepGrounds:
    """Asks the step host what steps rest on; the same question only once."""

    def __init__(self, host: StepHost, threads: int) -> None:
        self._host = host
        self._threads = threads
        self._digests: dict[tuple[str, ...], asyncio.Task[str]] = {}
        self._uses: dict[str, asyncio.Task[StepIdentified]] = {}

    async def add(self, ground: Footprint, title: str, step: Step, site: StepSite) -> None:
        """Add the text of a step, without the locations of its suite and Python, and its inputs."""
        told = canonical_json((step.argv, step.cwd, step.inherits, step.inherits_all))
        ground.parts[f"{title} step"] = digest_parts(site.generalize(told))
        env = {name: site.generalize(text) for name, text in step.env.items()}
        ground.put_variables(env, f"{title} ")
        ground.parts[f"{title} inputs"] = await self.digest_inputs(step, site)

    async def add_uses(
        self,
        ground: Footprint,
        title: str,
        asked: tuple[Step, StepSite],
        made: tuple[Digest, GoldenPart, BuildKey] = (NO_TREE, WHOLE, NO_BUILD),
    ) -> None:
        """Add what a step uses outside of its suite; ``made`` is the golden tree, its part, the build."""
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
        found = await ask_once(self._uses, key, lambda: self._host.ask(request))
        ground.parts[f"{title}{USES}"] = found.uses
        ground.doubt(*(f"{title} step: {doubt}" for doubt in found.doubts))

    async def digest_inputs(self, step: Step, site: StepSite) -> str:
        """A digest of the files that a step names as its inputs, and of the files among its arguments."""
        found = find_arguments(step, Path(site.suite))
        return await self.digest_files(tuple(dict.fromkeys((*step.inputs, *found))), site)

    async def digest_files(self, patterns: tuple[str, ...], site: StepSite) -> str:
        """A digest of the files of a suite that match these patterns."""
        if not patterns:
            return site.tree
        asked = (site.tree, site.suite, *patterns)
        return await ask_once(self._digests, asked, lambda: self._ask_for_files(site, patterns))

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


def put_ground(golden: Golden, ground: Footprint, *, is_partial: bool) -> Golden:
    """A golden result with what its case rests on, and the key over it without the build's own."""
    parts = {name: one for name, one in ground.parts.items() if not name.startswith("build ")}
    key = GoldenKey(Footprint(parts=parts, doubts=ground.doubts).key("case"))
    return msgspec.structs.replace(golden, key=key, footprint=ground, is_partial=is_partial)
