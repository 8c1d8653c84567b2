"""The record of one build: a target makes it, and it goes through worker, engine and result to the reports."""

from tileyard.model import BuildKey, Diagnostic, Outcome, Record, Value


class Build(Record):
    """How one kernel was built for a target. ``outcome`` is ``passed``, or says how the build failed.

    A target fills in what it knows. ``files`` are the artifact's files, in the directory given to the
    target; a name with a slash at its end is a directory that is kept as a whole. ``details`` is the
    target's own part of the manifest as JSON text, ``binary`` identifies the device source with its
    compiler and flags, and ``printed`` is what the compiler printed. ``diagnostic`` says why a build
    failed, or what people should see although it passed.

    The compile worker adds ``case``, the build key ``build``, the kernel's share ``build_s`` of the
    seconds spent, and ``message``: the diagnostic in one line.

    The engine moves what was printed to ``log``, a path below the data directory, and sets ``reused``
    where there was nothing to build. A case that ended before its build has its outcome and message here.
    The result of a run adds the ``config``.
    """

    outcome: Outcome
    case: str = ""
    config: dict[str, Value] = {}
    message: str = ""
    build: BuildKey = BuildKey("")
    build_s: float = 0.0
    reused: bool = False
    details: str = ""
    log: str = ""
    diagnostic: Diagnostic | None = None
    binary: str = ""
    files: tuple[str, ...] = ()
    printed: str = ""
