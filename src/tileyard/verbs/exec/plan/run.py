"""Runs a script as ``python SCRIPT`` would, with the CPU in place of a GPU.

Its prints and exit status are unchanged, and so are its tracebacks, except that frames of ours are removed.
"""

import atexit
import builtins
import contextlib
import importlib
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType

from tileyard.base.settings import Settings
from tileyard.frontend.blame import explain_error
from tileyard.frontend.no_device import adjust_tilelang
from tileyard.verbs.exec.plan.building import Builder
from tileyard.verbs.exec.plan.checking import KernelChecker
from tileyard.verbs.exec.plan.grounds import RunStudy
from tileyard.verbs.exec.plan.script_tuning import ScriptGround
from tileyard.verbs.exec.plan.tally import Summary, Tally
from tileyard.verbs.exec.plan.tilelang_device import answer_device
from tileyard.verbs.exec.plan.tilelang_jit import compile_for_cpu
from tileyard.verbs.exec.plan.tilelang_timing import time_on_cpu
from tileyard.verbs.exec.plan.torch_arithmetic import divide_as_gpus_do, promote_half
from tileyard.verbs.exec.plan.torch_cuda import answer_cuda, profile_host
from tileyard.verbs.exec.plan.torch_tensors import cast_on_host, keep_tensors_on_host

_OURS = str(Path(__file__).parents[3]) + os.sep
_FAILED = 1


@dataclass(frozen=True, kw_only=True)
class Helpers:
    """The functions that carry out the script's tuners and check its kernels; None for neither."""

    study: RunStudy | None = None
    checker: KernelChecker | None = None


NONE = Helpers()


def run_script(
    arguments: list[str],
    settings: Settings,
    tell: Callable[[Summary], None],
    *,
    is_module: bool = False,
    helpers: Helpers = NONE,
) -> int:
    """Run ``arguments[0]`` with the others as its own, and return its exit status, not 0 if a checker of the
    ``helpers`` found mistakes at once. ``tell`` gets the summary once, when the process ends. An interrupted
    script ends it by the signal; SystemExit passes through.
    """
    tally = Tally(len(settings.cores))
    checker = helpers.checker
    install_hooks(settings, tally, helpers)
    process = os.getpid()

    def end(*, is_interrupted: bool = False) -> None:
        if os.getpid() == process:
            try:
                if checker is not None and not is_interrupted:
                    checker.finish()
            finally:
                tell(tally.summary())

    atexit.register(end)
    sys.argv = list(arguments)
    try:
        if is_module:
            place_first(Path.cwd())
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        else:
            run_file(arguments[0])
    except SystemExit as ended:
        ended.__traceback__ = None
        if checker is not None and checker.found and not ended.code:
            return _FAILED
        raise
    except KeyboardInterrupt as error:
        show(error)
        atexit.unregister(end)
        end(is_interrupted=True)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:  # noqa: BLE001 (whatever it is, the interpreter would show it)
        show(error)
        return _FAILED
    return _FAILED if checker is not None and checker.found else 0


def install_hooks(
    settings: Settings,
    tally: Tally,
    helpers: Helpers = NONE,
) -> None:
    """Import torch and TileLang and make them answer for the CPU."""
    torch = importlib.import_module("torch")
    importlib.import_module("tilelang")
    adjust_tilelang()
    promote_half(torch, tally)
    keep_tensors_on_host(torch)
    cast_on_host(torch)
    divide_as_gpus_do(torch)
    answer_cuda(torch, tally)
    profile_host(torch, tally)
    answer_device(torch)
    compile_for_cpu(Builder(settings, tally, helpers.checker), tally)
    time_on_cpu(tally)
    if helpers.study is not None:
        ScriptGround(settings, tally, helpers.study).install()


def run_file(path: str) -> None:
    """Run a file as ``__main__``, as the interpreter does; any exception passes through."""
    file = str(Path(path).absolute())
    place_first(Path(path).resolve().parent)
    main = ModuleType("__main__")
    main.__file__ = file
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    vars(main)["__builtins__"] = builtins
    sys.modules["__main__"] = main
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    exec(code, vars(main))


def place_first(folder: Path) -> None:
    """Search modules in a folder first, unless an option of the interpreter excludes it."""
    if not sys.flags.safe_path:
        sys.path[0] = str(folder)


def show(error: BaseException) -> None:
    """Pass an exception to ``sys.excepthook`` without our frames; a compiler's error explains the line."""
    if said := explain_error(error):
        error.add_note(f"tileyard: {said}")
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        link.__traceback__ = without_ours(link.__traceback__)
        waiting += [link.__cause__, link.__context__]
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    sys.excepthook(type(error), error, error.__traceback__)


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without frames of Tileyard's, and without those that only start a module."""
    frames = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((_OURS, "<frozen runpy>")):
            frames.append(trace)
        trace = trace.tb_next
    cut = None
    for frame in reversed(frames):
        cut = types.TracebackType(cut, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return cut
