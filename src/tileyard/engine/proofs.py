"""Finds what decides the result of a case of programs, and what is doubtful: the base of proofs."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Coroutine, Hashable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tileyard.artifacts.digests import digest_if_there, find_arguments
from tileyard.artifacts.footprint import USES, Footprint, find_footprint, keep_by_key
from tileyard.artifacts.objects import ObjectStore, canonical_json, digest_bytes, digest_parts
from tileyard.base.errors import HOST_FAULTS, HomeError, TileyardError
from tileyard.base.model import (
    WHOLE,
    BuildKey,
    CommandWork,
    Digest,
    GoldenKey,
    GoldenPart,
    Record,
    Step,
)
from tileyard.engine.authors import TracedAuthor
from tileyard.engine.hosting import StepHost
from tileyard.frontend.reads import describe_surroundings, is_current, read_digest
from tileyard.targets.command.given import StepSite
from tileyard.workers.command_protocol import DigestFiles, IdentifyStep, StepIdentified
from tileyard.workers.command_runs import worker_environment
from tileyard.workers.protocol import (
    AnswerT,
    AuthorReply,
    CheckSync,
    DescribeKernels,
    Failed,
    Golden,
    MakeGolden,
    Question,
)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
EARLY = ("build", "golden")
_OF_BUILD = re.compile(r"(?<!\{)(\{\{)*\{build\}")
RECORD_KIND = "answer"
RECIPE = "5"
"""The version of the records and how they are made; a change that makes old records wrong raises it."""


NO_TREE, NO_BUILD = Digest(""), BuildKey("")


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


class Remembered(Record):
    """A reply, and the key of the footprint on which it depends."""

    reply: AuthorReply
    footprint: Digest


class RememberedAuthor:
    """The author of one file, whose process is started at the first new question.

    An answer is used again while its footprint is current, and it is kept with what user code printed for
    it. Failures are not kept, nor are goldens without an identity of their own. Without ``recall``
    everything is asked again, and kept, except checks of a kernel, which depend on its text alone.
    """

    def __init__(
        self, author: TracedAuthor, file: Path, objects: ObjectStore, *, recall: bool
    ) -> None:
        self.cores = author.cores
        self._author = author
        self._file = str(file)
        self._objects = objects
        self._recall = recall
        self._environ = worker_environment(threads=len(author.cores))
        self._content = digest_if_there(self._file)
        # The part of all keys that is not a question: the file and its environment.
        surroundings = describe_surroundings(self._environ)
        self._place = digest_parts(self._file, self._content, str(author.cores), *surroundings)
        self._current: dict[Digest, bool] = {}
        self._kept: list[tuple[Record, AuthorReply, Footprint]] = []

    async def begin(self) -> None:
        """Start the process ahead of its first question, if that will be a new one."""
        if self._find(DescribeKernels()) is None:
            await self._author.begin()

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """The known answer, or else the author's."""
        known = self._find(request)
        if known is not None:
            return request.check(known)
        reply = await self._author.ask(request, limit_s)
        footprint = self._author.footprint
        if footprint is not None and self._may_keep(reply, footprint):
            self._kept.append((request, reply, footprint))  # type: ignore[arg-type]  # an author's reply
        self._write()
        return reply

    async def close(self) -> None:
        """End the author's process, if there is one."""
        self._write()
        await self._author.close()

    # ---- inside -----------------------------------------------------------------------------

    def _may_keep(self, reply: object, footprint: Footprint) -> bool:
        """Whether it is known what the answer depends on, with the present content of the file."""
        if isinstance(reply, Failed) or (isinstance(reply, Golden) and not reply.is_identified):
            return False
        return not footprint.doubts and read_digest(footprint, self._file) == self._content

    def _find(self, request: Record) -> AuthorReply | None:
        if not (self._recall or isinstance(request, CheckSync)):
            return None
        try:
            data = self._objects.get_record(RECORD_KIND, self._key(request))
            if data is None:
                return None
            known = msgspec.msgpack.decode(data, type=Remembered)
            if not self._is_current(known.footprint):
                return None
            if isinstance(known.reply, Golden):
                for digest in (*known.reply.inputs, *known.reply.outputs):
                    self._objects.path(digest)
        except (msgspec.DecodeError, RecursionError, *HOST_FAULTS):
            return None
        return known.reply

    def _is_current(self, footprint: Digest) -> bool:
        """Whether a footprint is current, checked once per run: what holds at first holds for all of it."""
        if footprint not in self._current:
            known = find_footprint(footprint, self._objects)
            self._current[footprint] = known is not None and is_current(known, self._environ)
        return self._current[footprint]

    def _write(self) -> None:
        """Write the kept answers once the home exists: a request that is refused leaves no trace."""
        if not self._objects.root.parent.is_dir():
            return
        with contextlib.suppress(HomeError):  # the next run asks again for what cannot be kept
            for request, reply, footprint in self._kept:
                known = keep_by_key(footprint, "author", self._objects)
                data = msgspec.msgpack.encode(Remembered(reply=reply, footprint=known))
                self._objects.put_record(RECORD_KIND, self._key(request), data)
        self._kept.clear()

    def _key(self, request: Record) -> Digest:
        if isinstance(request, MakeGolden):  # what is made anew answers later questions, too
            request = msgspec.structs.replace(request, anew=False)
        # Not JSON, which has neither NaN nor infinity.
        question = digest_bytes(msgspec.msgpack.encode(request, order="sorted"))
        return digest_parts(RECORD_KIND, RECIPE, self._place, question)
