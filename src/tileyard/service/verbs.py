"""What a client can send to the engine process: a verb, whose plan is found by name. Light to import."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar, get_args

import msgspec

from tileyard.base.model import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileyard.base.model import Device
    from tileyard.base.settings import Settings
    from tileyard.engine.authors import Authors
    from tileyard.service.bench import Bench
    from tileyard.service.runs import Plan

ResultT = TypeVar("ResultT")


class Verb(Record, Generic[ResultT], kw_only=True):
    """Base of all verbs. A subclass names its result, a Record, as in ``class Count(Verb[Counted])``.

    ``opener`` is the function that opens it, as ``module:function``; ``result`` is the result as
    ``module:class``, where a verb that is light to import names it in quotes; and ``kept`` is printed for a
    run that did not end. ``golden_threads`` replaces that of the settings, and ``python_limit_s`` likewise,
    unless it is 0. ``target`` is the target of kernels, and ``devices`` are names, empty for all devices of
    the target's class; ``hosts`` are the places of agents that have them, empty for this host.
    """

    opener: ClassVar[str] = ""
    result: ClassVar[str] = ""
    kept: ClassVar[str] = "what was measured is recorded; run the same command again to continue"
    is_timing: ClassVar[bool] = False
    """Whether its result is about times."""

    golden_threads: int | None = None
    python_limit_s: float = 0.0
    target: str = ""
    devices: tuple[str, ...] = ()
    hosts: str = ""

    def settle(self, settings: "Settings") -> Self:
        """The same, with this host's architecture if the target has none. Raises UsageError."""
        from tileyard.service.choosing import require_timed, settle_target

        if self.is_timing:
            require_timed(self.target)
        if self.hosts:  # whose devices decide
            return self
        target = settle_target(self.target, self.devices, settings)
        return msgspec.structs.replace(self, target=target)

    async def open(self, bench: "Bench") -> "Plan[ResultT]":
        """Make a run's resources, in the engine process. Raises TileyardError for an invalid request."""
        plan: Plan[ResultT] = await resolve_name(self.opener)(self, bench)
        return plan

    @classmethod
    def result_type(cls) -> type[ResultT]:
        """The type of the result."""
        if cls.result:
            return resolve_name(cls.result)  # type: ignore[no-any-return]  # as below
        (kind,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]  # of a generic class
        return kind  # type: ignore[no-any-return]  # its type is known when it runs


class KernelVerb(Verb[ResultT], kw_only=True):
    """A verb about one kernel of a ``file``, empty if the client is the author. ``compile_workers``
    and ``group_size`` are as in a yard; ``reuse``: the author's earlier answers are used.
    """

    file: str
    target: str
    reuse: bool
    compile_workers: int | None = None
    group_size: int | None = None

    async def begin(
        self, bench: "Bench", authors: "Authors", devices: "Sequence[Device]" = ()
    ) -> None:
        """Start the processes that it needs first, the author before all, as its imports take longest: see
        ``Bench.begin``. Raises TileyardError for hosts that cannot be used.
        """
        from tileyard.engine.compilers import Builders, CompilePool, choose_cores
        from tileyard.service.choosing import use_hosts

        await authors.begin("", self.file)
        if self.hosts and bench.hosts is None:
            await use_hosts(bench, self.hosts)
        cores = choose_cores(bench.settings, devices, self.compile_workers)
        own = CompilePool(bench.settings, authors.sides, cores, self.group_size)
        pool: Builders = own
        if bench.hosts is not None:
            asked = self.compile_workers, self.group_size
            pool = await bench.hosts.open_builders(own, authors.sides, *asked)
        await bench.begin(self.target, pool)
