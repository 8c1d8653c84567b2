"""Runs a script as ``python SCRIPT`` would, with the CPU in place of a GPU.

Its prints and exit status are unchanged, and so are its tracebacks, except that frames of ours are removed.
"""

import atexit
import builtins
import contextlib
import importlib
import importlib.machinery
import io
import json
import os
import runpy
import signal
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from tileyard.base.settings import Settings
from tileyard.frontend.blame import explain_error
from tileyard.frontend.no_device import ASSUMED_TARGET, adjust_tilelang
from tileyard.verbs.exec.plan.building import Builder
from tileyard.verbs.exec.plan.checking import KernelChecker
from tileyard.verbs.exec.plan.grounds import RunStudy
from tileyard.verbs.exec.plan.tally import Summary, Tally
from tileyard.verbs.exec.plan.tilelang_jit import compile_for_cpu
from tileyard.verbs.exec.plan.tilelang_timing import time_on_cpu
from tileyard.verbs.exec.plan.tilelang_tuning import ScriptGround
from tileyard.verbs.exec.plan.torch_cuda import (
    CAPABILITY,
    NAME,
    Properties,
    answer_cuda,
    profile_host,
)
from tileyard.verbs.exec.plan.torch_tensors import (
    cast_on_host,
    divide_as_gpus_do,
    keep_tensors_on_host,
    promote_half,
)

ATTRIBUTES = {1: 1024, 12: 65536, 81: 233472, 108: 32 << 20}
"""CUDA's device attributes that TileLang reads, by number: those of the assumed GPU."""
_FAILED = 1


class Device:
    """TVM's description of a GPU, for TileLang's analyses."""

    exist = True
    device_name = NAME
    compute_version = ".".join(map(str, CAPABILITY))
    warp_size = Properties.warp_size
    multi_processor_count = Properties.multi_processor_count
    max_threads_per_block = Properties.max_threads_per_block
    max_shared_memory_per_block = Properties.shared_memory_per_block
    total_global_memory = Properties.total_memory
    l2_cache_size_bytes = Properties.L2_cache_size

    def __init__(self, index: int = 0) -> None:
        self.index = index


def answer_device(torch: ModuleType) -> None:
    """Make TileLang see the device of ``torch.cuda``."""
    for name in ("tilelang.utils.device", "tilelang.profiler.bench"):
        module = import_module(name)
        vars(module).update(IS_CUDA=True, Event=torch.cuda.Event)
    for name in ("tilelang.carver.arch.driver", "tilelang.carver.arch.driver.cuda_driver"):
        vars(import_module(name)).update(
            get_device_attribute=find_attribute,
            get_cuda_device_properties=torch.cuda.get_device_properties,
        )
    vars(import_module("tilelang.cuda.target")).update(check_cuda_availability=lambda: True)
    targets: Any = import_module("tilelang.backend.target")
    targets.register_target_detector("cuda", lambda: json.loads(ASSUMED_TARGET), override=True)
    make = import_module("tvm").device

    def find_device(dev: str, index: int = 0) -> object:
        return Device(index) if str(dev).partition(":")[0] == "cuda" else make(dev, index)

    for name in ("tvm", "tvm.runtime"):
        vars(import_module(name)).update(cuda=Device, device=find_device)


def find_attribute(attr: int, device_id: int = 0) -> int | None:
    """One attribute of the device; None for one that is never needed."""
    return ATTRIBUTES.get(attr)


_OURS = str(Path(__file__).parents[3]) + os.sep


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
