"""What a case is that consists of programs: its steps, and how their results are judged."""

from typing import Literal

from tileyard.model import Outcome, Record, Tolerance

PLACES = (
    "work",
    "out",
    "cache",
    "golden",
    "build",
    "device",
    "threads",
    "toolchain",
    "targets",
    "cases",
    "works",
)
"""What a step is told when it runs.

``work`` is the case's private directory, with a copy of what its golden step made. ``out`` is where a
build or golden step puts its results; ``golden`` and ``build`` are these results, read-only.
``cache`` stays from one build to the next, for what the build tool itself does not do twice. ``device``
is the index or name that the lease gave, ``threads`` how many threads a step may use. ``toolchain`` is
the unpacked toolchain bundle. ``targets`` is what of a shared build the selection needs, and ``cases`` the
cases of a hot batch, ``works`` their directories in the same order; each of these three, standing alone as
an argument, becomes as many arguments as there are.
"""

NanPolicy = Literal["equal", "forbid", "ignore"]
"""NaN equals NaN; any NaN of the output is wrong; elements whose reference is NaN are not compared."""


class Step(Record):
    """A program that is run for a case, with the files that its result depends on.

    ``argv``, ``cwd`` and the values of ``env`` are templates: ``{place}`` stands for one of PLACES, a
    brace that is meant as such is written twice.

    ``inputs`` are files, directories and globs. ``limit_s`` is 0 for what the run allows. ``cwd`` is
    the suite's folder where it is empty, for a run or check step the case's work directory.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    inputs: tuple[str, ...] = ()
    cwd: str = ""
    limit_s: float = 0.0


class HotRun(Record):
    """One process that runs several cases and says on its output how each one went.

    ``began`` and ``ended`` are regular expressions that are searched in each line of it; both have
    a group ``case``, and ``ended`` has a group ``verdict``, which ``verdicts`` turns into an outcome.
    """

    step: Step
    began: str
    ended: str
    verdicts: dict[str, Outcome]


class OutputCheck(Record):
    """A binary output in ``work`` that is compared with the one that the golden step made.

    Raw elements in C order: ``shape`` of ``dtype``, of which the leading ``valid_shape`` (all of it
    where empty) is compared. ``tolerance`` is None for the dtype's default; ``is_elementwise`` says
    that its ``atol`` is meant as it stands and not times the reference's root mean square.
    """

    file: str
    golden: str
    dtype: str
    shape: tuple[int, ...]
    valid_shape: tuple[int, ...] = ()
    tolerance: Tolerance | None = None
    is_elementwise: bool = True
    nan: NanPolicy = "equal"


class CommandRun(Record):
    """What is run for a case, beside its artifact.

    ``folder`` is the case's own: the step's ``{work}`` is ``data`` in it, ``tmp`` its temporary directory.
    ``env`` is added to the runner's own environment, and ``threads`` are what the step may use. ``name``
    is what a hot run calls the case. ``own_build`` identifies what the case itself needs of a build, which
    others may share: whatever else was built beside it proves nothing about it. ``is_judged`` says that somebody will look at the outputs, so exit
    code 0 alone proves nothing. ``memory_bytes`` bounds the address space of each of its processes, 0 for
    no limit.
    """

    name: str
    run: Step
    folder: str
    threads: int = 1
    hot: HotRun | None = None
    env: dict[str, str] = {}
    is_judged: bool = False
    own_build: str = ""
    memory_bytes: int = 0
