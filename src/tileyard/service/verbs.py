"""The verbs that a client can send to the engine process. Light to import: what carries a verb out is not.

A verb is a source of cases and a fold over their trials. The client makes it and sends it to the engine
process, which opens it.
"""

from typing import TYPE_CHECKING, ClassVar, Generic, Literal, Self, TypeVar, get_args

import msgspec

from tileyard.base.measures import Measure
from tileyard.base.model import Limits, Record, Side, Value
from tileyard.verbs.regress.result.gate import Gate
from tileyard.verbs.regress.result.timed import Regression
from tileyard.verbs.test.result.records import Wish
from tileyard.verbs.test.result.result import SuiteResult
from tileyard.verbs.tune.result.records import (
    CompileResult,
    Shape,
    StudyResult,
    TableResult,
    TuneRequest,
)

if TYPE_CHECKING:
    from tileyard.base.settings import Settings
    from tileyard.service.bench import Bench
    from tileyard.service.runs import Plan

ResultT = TypeVar("ResultT")


class Verb(Record, Generic[ResultT], kw_only=True):
    """Base of all verbs. A subclass names its result, a Record, as in ``class Count(Verb[Counted])``.

    ``kept`` is printed for a run that did not end. ``golden_threads`` replaces that of the settings, 0 for no replacement, and ``python_limit_s`` likewise.
    ``target`` is the target of kernels, and ``devices`` are names, empty for all devices of the target's class.
    """

    kept: ClassVar[str] = "what was measured is recorded; run the same command again to continue"
    is_timing: ClassVar[bool] = False
    """Whether its result is about times."""

    golden_threads: int = 0
    python_limit_s: float = 0.0
    target: str = ""
    devices: tuple[str, ...] = ()

    def settle(self, settings: "Settings") -> Self:
        """The same, with the architecture of this host's devices if the target has none. Raises UsageError."""
        from tileyard.service.choosing import require_timed, settle_target

        if self.is_timing:
            require_timed(self.target)
        target = settle_target(self.target, self.devices, settings)
        return msgspec.structs.replace(self, target=target)

    async def open(self, bench: "Bench") -> "Plan[ResultT]":
        """Make the resources of a run, in the engine process. Raises TileyardError if the request is invalid."""
        raise NotImplementedError

    @classmethod
    def result_type(cls) -> type[ResultT]:
        """The type of the result."""
        (kind,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]  # of a generic class
        return kind  # type: ignore[no-any-return]  # its type is known when it runs


class StartTune(Verb[StudyResult], kw_only=True):
    """Begin a tuning run. ``file`` is empty if the client itself is the author.

    ``compile_workers`` and ``group_size`` are as in a yard; a case waits for a device for
    ``queue_limit_s``. For the targets ``also_build`` the configs are built, and not run. With a ``bundle`` its configs are timed, for their target; there is no file then.
    ``title`` is the word that reports put before the kernel's name. ``fresh`` is as in a yard.
    """

    is_timing = True

    request: TuneRequest
    target: str
    file: str
    reuse: bool
    fresh: bool = False
    title: str = "tune"
    bundle: str = ""
    also_build: tuple[str, ...] = ()
    overlap: bool = True
    compile_workers: int | None = None
    group_size: int | None = None
    queue_limit_s: float = 1800.0

    async def open(self, bench: "Bench") -> "Plan[StudyResult]":
        """See ``Verb``."""
        from tileyard.service.choosing import choose_devices

        if self.bundle:
            from tileyard.verbs.tune.plan.packed import open_packed_study

            return await open_packed_study(self, bench)
        devices = choose_devices(self.devices, self.target, bench.settings)
        authors = bench.make_authors(devices=devices, recall=self.reuse)
        await bench.begin(self, authors, devices)
        # Half a second of imports, made while these processes are making their own.
        from tileyard.verbs.tune.plan.tuning import open_study

        return await open_study(self, bench, devices, authors)


class StartTable(Verb[TableResult], kw_only=True):
    """Begin tuning runs for many shapes, as one, and make the dispatch table in which each is ``within`` that share of its best time."""

    tune: StartTune
    shapes: tuple[Shape, ...]
    within: float

    def settle(self, settings: "Settings") -> Self:
        """See ``Verb``."""
        return msgspec.structs.replace(self, tune=self.tune.settle(settings))

    async def open(self, bench: "Bench") -> "Plan[TableResult]":
        """See ``Verb``."""
        from tileyard.service.choosing import choose_devices

        devices = choose_devices(self.tune.devices, self.tune.target, bench.settings)
        authors = bench.make_authors(devices=devices, recall=self.tune.reuse)
        await bench.begin(self.tune, authors, devices)
        # As above, and half a second of SciPy's.
        from tileyard.verbs.tune.plan.tables import open_table

        return await open_table(self, bench, devices, authors)


class StartTest(Verb[SuiteResult], kw_only=True):
    """Begin a run of a suite: of ``path``, the cases that ``wish`` selects.

    ``slots`` is the number of cases of programs that run at once if no ``devices`` are named, 0 for one on each core;
    for kernels on a CPU it is the number of parts of the cores. ``split`` is the maximum length of a piece, in seconds.
    ``shard`` is ``2/8`` for the second of eight. ``changed`` leaves out the cases that the run of that name, or
    ``any``, has proven, and with ``is_explained`` each case states what decided; ``rerun_failed`` leaves out those that
    did not fail in their last run. ``durations`` is a file of times measured elsewhere, ``durations_pattern`` selects
    its lines with times if it is a log of an unknown kind, ``toolchain`` is a bundle that steps use, which must be of
    ``commit`` if that is given. ``is_bundle`` is set if ``path`` is a bundle of a suite; with ``pack_to`` nothing is
    run, and such a bundle is written there. ``retries`` None means the policy's value. With ``require_check`` a case
    that nothing was compared with fails. Without ``keep_work`` the folders of cases that passed are removed. With
    ``fail_fast`` nothing is begun after the first failure that gates. ``check_sync`` is as in a yard. ``parameters``
    are values of the suite's parameters; the others have their first value.
    """

    kept = (
        "finished cases are recorded; --changed any skips those that passed with the same content"
    )

    path: str
    wish: Wish
    target: str = "cpu"
    slots: int = 0
    split: float | Literal["auto", "off"] = "auto"
    shard: str = ""
    budget_s: float = 0.0
    changed: str = ""
    parameters: dict[str, str] = {}
    is_explained: bool = False
    durations: str = ""
    durations_pattern: str = ""
    toolchain: str = ""
    commit: str = ""
    is_bundle: bool = False
    pack_to: str = ""
    rerun_failed: bool = False
    fail_fast: bool = False
    retries: int | None = None
    require_check: bool = False
    keep_work: bool = False
    check_sync: bool | None = False
    compile_workers: int | None = None
    queue_limit_s: float = 1800.0

    async def open(self, bench: "Bench") -> "Plan[SuiteResult]":
        """See ``Verb``."""
        from tileyard.verbs.test.plan.suites import open_suite

        return await open_suite(self, bench)


class StartCompile(Verb[CompileResult], kw_only=True):
    """Begin to build the configs of a kernel that a tuning run of ``request`` would try, and run none.

    Without ``all_configs`` that is the first one only. With ``pack_to`` they are written into a bundle
    there, with inputs and reference results, for ``commit`` if that is given. ``pass_options`` replace
    a kernel's own of the same names; ``pipeline`` is that of a Side. The rest is as in StartTune.
    """

    kept = "what was built is kept; run the same command again to continue"

    request: TuneRequest
    target: str
    file: str
    all_configs: bool = False
    pass_options: dict[str, Value] = {}
    pipeline: str = ""
    pack_to: str = ""
    commit: str = ""
    reuse: bool = True
    compile_workers: int | None = None
    group_size: int | None = None

    async def open(self, bench: "Bench") -> "Plan[CompileResult]":
        """See ``Verb``."""
        sides = (Side(pass_options=self.pass_options, pipeline=self.pipeline),)
        authors = bench.make_authors(sides=sides, recall=self.reuse)
        await bench.begin(self, authors)
        await bench.check_tools(self.target)
        from tileyard.verbs.compile.plan import open_compiling

        return await open_compiling(self, bench, authors)


class StartRegress(Verb[Regression], kw_only=True):
    """Begin to time the kernels or programs of two sides against each other, where their binaries differ.

    The files of a side are Python files, each with the selected kernel or an empty name for all of its own.
    With a ``suite``, the path of one for base and for head, its programs are compared instead, those that
    ``select`` selects; with ``scripts`` the files are scripts for ``tileyard exec``, compared by ``measure``.
    ``gate`` states which change matters, and which one fails. No pair is timed for longer than ``case_s``
    seconds, and none is begun after ``budget_s``. With ``rounds`` all kernels are built that many times on each
    side, and nothing is run. Pairs are ``built`` once, or known to be, ``timed`` as well, or ``confirmed`` if
    they have changed: timed with their code at other places. The rest is as in StartTune.
    """

    is_timing = True

    kept = "what was measured is recorded; the same command starts over"

    base: Side
    head: Side
    base_files: tuple[tuple[str, str], ...]
    head_files: tuple[tuple[str, str], ...]
    target: str
    gate: Gate
    case_s: float
    suite: tuple[str, str] | None = None
    scripts: bool = False
    measure: Measure | None = None
    select: tuple[str, ...] = ()
    budget_s: float | None = None
    rounds: int = 0
    all_configs: bool = False
    until: Literal["built", "timed", "confirmed"] = "confirmed"
    limits: Limits = Limits()
    compile_workers: int | None = None
    queue_limit_s: float = 1800.0

    async def open(self, bench: "Bench") -> "Plan[Regression]":
        """See ``Verb``."""
        if self.rounds:
            from tileyard.verbs.regress.plan.static_building import open_rounds

            return await open_rounds(self, bench)
        from tileyard.verbs.regress.plan.regressing import open_regression

        return await open_regression(self, bench)
