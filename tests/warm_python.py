"""Processes that have imported what takes long to import, and run modules in copies of themselves.

Of Tileyard, what is imported ahead are the rooms of its command line, of its engine and of its workers: they
read nothing when they are imported. An engine that a copy starts is a copy, too, and otherwise what it would
be: a child of its own session with an environment, signals and descriptors of its own. So are agents that it
starts directly, and workers with their keepers, authors only where TileLang is imported ahead, which takes
seconds. Fresh processes are compile workers for GPUs, whose compilers need their addresses fixed, and all
that ``CommandLine.start`` begins.
"""

import atexit
import contextlib
import gc
import hashlib
import importlib
import itertools
import json
import logging
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

ENGINE = "tileyard.service.process"
AGENT = ("-P", "-m", "tileyard", "agent")
AUTHOR = "tileyard.workers.author"
COMPILER = "tileyard.workers.compiler"
WORKERS = (
    AUTHOR,
    COMPILER,
    *(f"tileyard.workers.{name}" for name in ("judge", "runner", "step_host")),
)
SPACE_BYTES = 4 << 30
"""The address space that a limited worker must have left, or it is a fresh process."""
KEEPER = "tileyard.processes.keeper"
HEARD = (
    "TILELANG_",
    "TVM_",
    "TL_",
    "TORCH_",
    "PYTORCH_",
    "CUDA_",
    "NVIDIA_",
    "PYTHON",
    "LD_",
    "HOME",
)
"""How the names of variables begin that are read when TileLang is imported, or the interpreter begins."""
HEARD_WITHOUT = ("PYTHON", "LD_")
"""Likewise for a worker that does not import TileLang."""
UNHEARD = ("PYTHONPATH", "PYTHONSAFEPATH", "TILELANG_DEFAULT_TARGET")
"""Variables by which ``sys.path`` begins, which a copy sets itself, and one that is read whenever it is
used."""
COMMANDS = (
    *("numpy", "pydantic.fields", "pydantic.type_adapter", "rich.console"),
    *("sqlalchemy", "tileyard.cli.main", "tileyard.show.session", "zoneinfo"),
    *("tileyard.engine.hosts.agent", "tileyard.engine.hosts.session"),
    *("tileyard.verbs.compile.command.artifact_session", "tileyard.verbs.compile.plan.compiling"),
    *("tileyard.verbs.compile.command.inspect_session", "tileyard.verbs.ci.command.session"),
    *("tileyard.verbs.regress.command.comparing", "tileyard.verbs.regress.plan.static"),
    *("tileyard.verbs.test.command.predicting", "tileyard.verbs.test.command.session"),
    *("tileyard.verbs.test.plan.suites", "tileyard.verbs.tune.plan.tuning"),
    "tileyard.verbs.tune.command.session",
    *("tileyard.targets.command.target", "tileyard.targets.cpu.target"),
    *(name for name in WORKERS if name != AUTHOR),
)
KERNELS = "tileyard.__main__"
"""What runs a command that is about a file of kernels, a script, or pytest: a copy of the larger process
costs 0.1 s more."""
C_COMPILERS = ("cc", "gcc", "clang", "ziglang")
AHEAD = {
    "tileyard": COMMANDS,
    KERNELS: (
        *COMMANDS,
        *("tilelang.autotuner", "tilelang.language", "tileyard.frontend.tilelang"),
        *("pytest", "tileyard.pytest_plugin.plugin", "tileyard.workers.sync_sizes"),
    ),
}
"""What is imported before a module is run."""


_COUNTED: list[str] = []
"""The file to which each start adds a letter, if starts are counted."""
_counted = threading.local()
"""Of each thread, whether what it compiles is counted already."""
_COMPILED: list[str] = []
"""The folder of what C compilers have made, if it is used again."""


def use_compiled(folder: str) -> None:
    """Have copies compile no C text again that another copy of this test run has compiled."""
    _COMPILED.append(folder)


def compile_once(folder: Path) -> None:
    """Have the cpu target copy what a C compiler has made of the same text before, for anyone who shares a
    folder. Counted is each time, so that a file's count does not depend on the files before it.
    """
    toolchain = importlib.import_module("tileyard.targets.cpu.toolchain")
    run = toolchain.Toolchain._run

    def look_first(self: Any, place: Path, arguments: tuple[str, ...]) -> Any:  # noqa: ANN401 - as its own
        output, source = (arguments[arguments.index("-o") + step] for step in (1, 2))
        program = shutil.which(self.command[0]) or ""
        parts = (
            *self.command,
            *arguments,
            self.version,
            program,
            Path(program or "/").stat().st_mtime_ns,
        )
        key = hashlib.sha256((place / source).read_bytes())
        for header in sorted(place.glob("*.h")):
            key.update(header.read_bytes())
        key.update("\0".join(map(str, parts)).replace(str(place), "").encode())
        kept = folder / key.hexdigest()
        add_letter(b"c")
        if kept.exists():
            shutil.copyfile(kept, place / output)
            (place / output).chmod(0o755)
            return toolchain.Compiled(ok=True, log="")
        _counted.compiler = True
        try:
            compiled = run(self, place, arguments)
        finally:
            _counted.compiler = False
        if compiled == toolchain.Compiled(ok=True, log=""):
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f"{kept.name}.{os.getpid()}.{threading.get_ident()}"
            shutil.copyfile(place / output, draft)
            draft.rename(kept)
        return compiled

    toolchain.Toolchain._run = look_first


def count_starts(path: str) -> None:
    """Add a letter to a file for each start in this process and in those that are forked from it: c for a
    compiler, else p."""
    _COUNTED.append(path)
    sys.addaudithook(hear_start)


def hear_start(event: str, given: tuple[Any, ...]) -> None:
    """Add a letter for what is started."""
    if event in ("subprocess.Popen", "os.posix_spawn"):
        words = [os.fsdecode(word) for word in given[1] or ()]
        is_compiler = any(Path(word).name in C_COMPILERS for word in words[:4]) and "-o" in words
        if not is_compiler:
            add_letter(b"p")
        elif not getattr(_counted, "compiler", False):
            add_letter(b"c")


def add_letter(letter: bytes) -> None:
    """Add a letter, which no other process does at the same moment."""
    for path in _COUNTED:
        with contextlib.suppress(FileNotFoundError):  # the tests have ended
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.write(file, letter)
            os.close(file)


class WarmPython:
    """Runs ``python -m module`` one after another, each in a process of its own; threads wait for their
    turn."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__, module, *(_COUNTED or [""]), *_COMPILED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        module: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run it, or another module that is named, to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn, tempfile.TemporaryDirectory() as printed:
            paths = [Path(printed, name) for name in ("stdout", "stderr")]
            argv = [module or self._module, *arguments]
            asked = {
                "arguments": argv,
                "folder": str(folder),
                "environment": dict(environment),
                "cores": sorted(os.sched_getaffinity(0)),
                "printed": [str(path) for path in paths],
            }
            add_letter(b"p")
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            code = int(self._process.stdout.readline())
            stdout, stderr = (path.read_text(encoding="utf-8") for path in paths)
        return subprocess.CompletedProcess(argv, code, stdout, stderr)

    def close(self) -> None:
        """End it, with a run that goes on."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


_BEGUN: dict[str, WarmPython] = {}


def warm(module: str) -> WarmPython:
    """The one of this test process for a module of ``AHEAD``; ``close_all`` ends it."""
    if module not in _BEGUN:
        _BEGUN[module] = WarmPython(module)
    return _BEGUN[module]


def close_all() -> None:
    """End all that were begun."""
    while _BEGUN:
        _BEGUN.popitem()[1].close()


def become(run: Mapping[str, Any]) -> None:
    """Turn a copy into what ``python -m`` is when it begins."""
    os.chdir(run["folder"])
    os.sched_setaffinity(0, run["cores"])
    os.environ.clear()
    os.environ.update(run["environment"])
    paths = run["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [run["folder"], *filter(None, paths)]
    sys.argv = run["arguments"]
    silence = os.open(os.devnull, os.O_RDONLY)
    printed = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in run["printed"]]
    for stream, opened in enumerate((silence, *printed)):
        os.dup2(opened, stream)
        os.close(opened)


class EngineCopy(subprocess.Popen[bytes]):
    """What ``subprocess.Popen`` is; an engine of this Python is a copy of this process."""

    def __init__(  # noqa: PLR0913 - what subprocess.Popen is given
        self,
        argv: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        env: Mapping[str, str],
        pass_fds: Sequence[int],
        start_new_session: bool,
    ) -> None:
        is_ours = tuple(argv) == (sys.executable, "-P", "-m", ENGINE)
        is_same = env.get("PYTHONPATH") == os.environ.get("PYTHONPATH")
        super().__init__(
            argv,
            stdin=stdin,
            stdout=stdout,
            env=env,
            pass_fds=pass_fds,
            start_new_session=start_new_session,
            preexec_fn=partial(become_engine, env, pass_fds) if is_ours and is_same else None,
        )


class AgentCopy(subprocess.Popen[bytes]):
    """What ``subprocess.Popen`` is; an agent of this Python, also behind ``env``, is a copy of this one."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: Any,  # noqa: ANN401 - as subprocess.Popen has it
        start_new_session: bool,
    ) -> None:
        words = list(itertools.dropwhile(lambda word: word == "env" or "=" in word, argv))
        set_here = dict(
            word.split("=", 1) for word in argv[: len(argv) - len(words)] if "=" in word
        )
        is_ours = words[:5] == [sys.executable, *AGENT] and not set_here.keys() & set(UNHEARD)
        super().__init__(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=start_new_session,
            preexec_fn=partial(become_agent, words, set_here) if is_ours else None,
        )


class WorkerCopy(subprocess.Popen[bytes]):
    """What ``subprocess.Popen`` is; a worker of this Python, and its keeper, are copies of this process."""

    def __init__(  # noqa: PLR0913 - what subprocess.Popen is given
        self,
        argv: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: Any,  # noqa: ANN401 - as subprocess.Popen has it
        bufsize: int,
        env: Mapping[str, str],
        pass_fds: Sequence[int],
        start_new_session: bool,
    ) -> None:
        super().__init__(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            bufsize=bufsize,
            env=env,
            pass_fds=pass_fds,
            start_new_session=start_new_session,
            preexec_fn=partial(become_keeper, argv, env, pass_fds)
            if is_copied(argv, env)
            else None,
        )


def is_copied(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether the worker of a keeper's command line can be a copy of this process."""
    options, worker = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    *begin, module = worker[:4]
    if begin != [sys.executable, "-P", "-m"] or module not in WORKERS:
        return False
    if module == COMPILER and worker[-1].partition(":")[0] == "cuda":
        return False
    memory = max(
        (int(word.removeprefix("memory=")) for word in options if word.startswith("memory=")),
        default=0,
    )
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    is_roomy = not memory or memory >= pages * os.sysconf("SC_PAGE_SIZE") + SPACE_BYTES
    names = HEARD if module == AUTHOR else HEARD_WITHOUT
    is_same = heard(environment, names) == heard(ENVIRONMENT, names)
    return is_roomy and is_same and (module != AUTHOR or "tilelang" in sys.modules)


def heard(environment: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """The variables that begin with one of the names, but for those of ``UNHEARD``."""
    return {
        name: text
        for name, text in environment.items()
        if name.startswith(names) and name not in UNHEARD and text != SET_AHEAD.get(name)
    }


COPIES = {
    "tileyard.engine.hosts.session": AgentCopy,
    "tileyard.service.client": EngineCopy,
    "tileyard.processes.supervise": WorkerCopy,
}
"""By the module that starts it, what is a copy."""
ENVIRONMENT = dict(os.environ)
SET_AHEAD: dict[str, str] = {}
"""Variables that imports have set."""
PLACES = [
    place for place in sys.path[1:] if place not in os.environ.get("PYTHONPATH", "").split(":")
]
"""Where modules are found, but for those that an environment names."""


def become_fresh(environment: Mapping[str, str], descriptors: Sequence[int]) -> None:
    """Be what a program is when it begins, with these descriptors and the first three open."""
    gc.freeze()  # what others have open is neither used nor closed again
    above = 3
    for kept in sorted(descriptors):
        os.closerange(above, kept)
        above = kept + 1
    os.closerange(above, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as Python does when it begins
        signal.signal(number, signal.SIG_IGN)
    logging.root.handlers.clear()
    for name, number in (("stdout", 1), ("stderr", 2)):  # the others may hold what is not ours
        lines = 1 if name == "stderr" else -1
        stream = open(number, "w", lines, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def run_to_the_end(module: str) -> NoReturn:
    """Run a module as the interpreter itself does, but end without freeing what was imported: that takes
    longer than most runs, as pages that are shared with others would be copied.
    """
    code: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = error.code
    except BaseException as error:  # noqa: BLE001 - what the interpreter does itself
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)  # noqa: T201 - likewise
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit((code or 0) & 0xFF)


def become_engine(environment: Mapping[str, str], descriptors: Sequence[int]) -> NoReturn:
    """Be the engine, from the moment at which its program would be executed to its end."""
    become_fresh(environment, descriptors)
    sys.argv[1:] = []
    del sys.path[0]  # what -P does
    run_to_the_end(ENGINE)


def become_agent(argv: Sequence[str], set_here: Mapping[str, str]) -> NoReturn:
    """Be an agent, from the moment at which its program would be executed to its end."""
    become_fresh({**os.environ, **set_here}, [])
    sys.argv[1:] = argv[4:]
    run_to_the_end("tileyard")


def become_keeper(
    argv: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int]
) -> NoReturn:
    """Be a worker's keeper, whose worker is a copy of it."""
    become_fresh(environment, descriptors)
    run, worker = (importlib.import_module(f"{KEEPER}.{name}") for name in ("run", "worker"))
    worker.start_program = partial(become_worker, worker)  # type: ignore[attr-defined]
    try:
        own = next(place for place, word in enumerate(argv) if word.startswith("parent="))
        run.main([*argv[own:]])
    finally:
        os._exit(1)


def become_worker(
    worker: types.ModuleType, argv: Sequence[str], environment: Mapping[str, str], keeper: int
) -> NoReturn:
    """Be the worker: what ``start_program`` does, but for the program."""
    worker.libc.sigprocmask(worker.SIG_SETMASK, worker.ctypes.byref(worker.signal_set()), None)
    worker.libc.prctl(worker.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(127)
    opened = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    become_fresh(environment, [fd for fd in opened if is_inherited(fd)])
    module = argv[3]
    sys.argv = [module, *argv[4:]]
    sys.path[:] = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *PLACES]
    sys.modules.pop(module, None)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    run_to_the_end(module)


def is_inherited(descriptor: int) -> bool:
    """Whether a program that is executed has this descriptor, too, above the first three."""
    try:
        return os.get_inheritable(descriptor) and descriptor > 2
    except OSError:  # that of the folder that was listed
        return False


def is_copy() -> bool:
    """Whether this process is a copy by now: one is made for each run, and the first returns at their end."""
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            become(json.loads(line))
            return True
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return False


if __name__ == "__main__":
    for name in AHEAD[sys.argv[1]]:
        importlib.import_module(name)
    SET_AHEAD.update(set(os.environ.items()) - set(ENVIRONMENT.items()))
    ours = importlib.import_module("tileyard")
    ours.__doc__ = f"{ours.__doc__} PYTEST_DONT_REWRITE"  # or pytest warns that it cannot any more
    if sys.argv[2]:
        count_starts(sys.argv[2])
    if sys.argv[3:]:
        compile_once(Path(sys.argv[3]))
    gc.freeze()  # so that no copy has to touch, and thereby to copy, all that is there
    if is_copy():
        for name, copy in COPIES.items():
            copying = types.SimpleNamespace(**{**vars(subprocess), "Popen": copy})
            sys.modules[name].subprocess = copying  # type: ignore[attr-defined]
        run_to_the_end(sys.argv[0])
