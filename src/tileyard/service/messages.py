"""What a client and the engine process say to each other, over the engine's standard streams."""

from typing import Literal

from tileyard.events import Event
from tileyard.model import Limits, Record, Value
from tileyard.regress.static import SideBuild
from tileyard.suite.records import Wish
from tileyard.suite.result import SuiteResult
from tileyard.tuning.request import CompileResult, StudyResult, TuneRequest
from tileyard.workers.protocol import AuthorReply, AuthorRequest


class StartTune(Record, tag="start_tune"):
    """Begin a tuning run. ``file`` is empty where the client itself is the author.

    ``devices`` are names, none for all devices of the target's class. ``compile_workers`` and
    ``group_size`` are as in a yard; a case waits for a device for ``queue_limit_s``. For the targets
    ``also_build`` the client has the configs built before, each by a StartCompile.
    """

    request: TuneRequest
    target: str
    file: str
    reuse: bool
    also_build: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    overlap: bool = True
    compile_workers: int | None = None
    group_size: int | None = None
    queue_limit_s: float = 1800.0


class StartTest(Record, tag="start_test"):
    """Begin a run of a suite: of ``path``, what ``wish`` says.

    ``slots`` is how many cases of programs run at once where no ``devices`` are named, 0 for one on
    each core; of kernels for a CPU it is into how many the cores are divided. ``split`` is how long a
    piece may be, in seconds. ``shard`` is ``2/8`` for the second of eight. ``golden_threads`` is 0 for
    the cores divided among the golden steps that run at once. ``changed`` leaves out what the run of
    that name, or ``any``, has proven, ``rerun_failed`` what did not fail when it was last run.
    ``durations`` is a file that says how long cases took elsewhere, ``toolchain`` a bundle that steps
    use, which must be of ``commit`` if that is given. ``is_bundle`` says that ``path`` is a bundle of a
    suite; with ``pack_to`` nothing is run, and such a bundle is written there. ``retries`` is None for what the
    policy says. With ``require_check`` a case that nothing was compared with fails. Without
    ``keep_work`` the folders of cases that passed are removed.
    """

    path: str
    wish: Wish
    target: str = "cpu"
    devices: tuple[str, ...] = ()
    slots: int = 0
    split: float | Literal["auto", "off"] = "auto"
    shard: str = ""
    budget_s: float = 0.0
    changed: str = ""
    durations: str = ""
    toolchain: str = ""
    commit: str = ""
    is_bundle: bool = False
    pack_to: str = ""
    rerun_failed: bool = False
    retries: int | None = None
    golden_threads: int = 0
    require_check: bool = False
    keep_work: bool = False
    compile_workers: int | None = None
    queue_limit_s: float = 1800.0


class StartCompile(Record, tag="start_compile"):
    """Begin to build the configs of a kernel that a tuning run of ``request`` would try, and run none.

    Without ``all_configs`` that is the first one only. With ``pack_to`` they are written into a bundle there, with inputs and reference results, for
    ``commit`` if that is given. ``pass_options`` take the place of a kernel's own of the same names. The
    rest is as in StartTune.
    """

    request: TuneRequest
    target: str
    file: str
    all_configs: bool = False
    pass_options: dict[str, Value] = {}
    pack_to: str = ""
    commit: str = ""
    reuse: bool = True
    compile_workers: int | None = None
    group_size: int | None = None


class StartStatic(Record, tag="start_static"):
    """Begin to build every kernel of a file, or the one that is named, for each of its shapes.

    ``title`` is what the run is called. The rest is as in StartCompile.
    """

    file: str
    target: str
    kernel: str = ""
    title: str = "static"
    all_configs: bool = False
    pass_options: dict[str, Value] = {}
    limits: Limits = Limits()
    compile_workers: int | None = None


class Answer(Record, tag="answer"):
    """The client's own author answers question ``number``."""

    number: int
    reply: AuthorReply


class Stop(Record, tag="stop"):
    """Start nothing new; or, with ``now``, end everything at once."""

    now: bool = False


class Happened(Record, tag="happened"):
    """An event of the run."""

    event: Event


class Question(Record, tag="question"):
    """A question to the client's own author."""

    number: int
    request: AuthorRequest


class Refused(Record, tag="refused"):
    """The run could not begin or go on, for a reason that the user can act on."""

    code: str
    message: str
    hint: str


class SuiteEnded(Record, tag="suite_ended"):
    """The run of a suite is over."""

    result: SuiteResult


class StudyEnded(Record, tag="study_ended"):
    """The tuning run is over."""

    result: StudyResult


class StaticEnded(Record, tag="static_ended"):
    """The kernels of a file are built."""

    result: SideBuild


class CompileEnded(Record, tag="compile_ended"):
    """The configs of a kernel are built."""

    result: CompileResult


Start = StartTune | StartTest | StartCompile | StartStatic
ClientMessage = StartTune | StartTest | StartCompile | StartStatic | Answer | Stop
Ended = StudyEnded | SuiteEnded | CompileEnded | StaticEnded
EngineMessage = Happened | Question | Refused | StudyEnded | SuiteEnded | CompileEnded | StaticEnded
