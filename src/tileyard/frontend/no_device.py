"""Lets TileLang elaborate kernels on a machine without a GPU."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


def on_import(name: str, then: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call ``then`` with this module, now or once imported, unless the result is called before."""
    finder = _Finder(name, then)
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, finder)

    def withdraw() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)

    return withdraw


class _Finder(MetaPathFinder):
    """Lets the finders after it find one module, and calls ``then`` once it is loaded."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, with a loader that also calls ``then``."""
        if fullname != self._name:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


TARGET_VARIABLE = "TILELANG_DEFAULT_TARGET"
ASSUMED_TARGET = '{"kind":"cuda","arch":"sm_90a"}'
CALLED_AT = " called at "
"""In a line's file name, between a file of TileLang's own and the user's place that called into it."""


@contextlib.contextmanager
def assume_target() -> Iterator[None]:
    """Names a GPU for TileLang to elaborate for, unless the environment does; restores everything
    afterwards. Without a GPU, code that queries its properties gets those of the assumed one.
    """
    adjust_tilelang()
    if os.environ.get(TARGET_VARIABLE):
        yield
        return
    os.environ[TARGET_VARIABLE] = ASSUMED_TARGET
    try:
        with _answering():
            yield
    finally:
        os.environ.pop(TARGET_VARIABLE, None)


class AssumedDevice:
    """The properties of the assumed GPU."""

    name = "NVIDIA H100"
    major, minor = 9, 0
    multi_processor_count = 132
    shared_memory_per_block = 49152


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    device = AssumedDevice()
    asked = (
        ("torch.cuda", "get_device_capability", (device.major, device.minor)),
        ("torch.cuda", "get_device_name", device.name),
        ("tilelang.carver.arch.driver.cuda_driver", "get_cuda_device_properties", device),
    )
    with contextlib.ExitStack() as after:

        def answer(question: str, told: object, module: ModuleType) -> None:
            if ask := getattr(module, question, None):
                after.callback(setattr, module, question, ask)
                setattr(module, question, _or_assume(ask, told))

        for name, question, told in asked:
            after.callback(on_import(name, functools.partial(answer, question, told)))
        yield


def _or_assume(ask: Callable[..., object], answer: object) -> Callable[..., object]:
    @functools.wraps(ask)
    def ask_or_assume(*args: object, **kwargs: object) -> object:
        try:
            found = ask(*args, **kwargs)
        except (AssertionError, RuntimeError):  # torch without CUDA, and CUDA without a driver
            return answer
        return answer if found is None else found

    return ask_or_assume


@functools.cache
def adjust_tilelang() -> None:
    """Make TileLang keep assertions without CUDA, note its macros' callers, and not log generated Python."""
    on_import("tilelang.cuda.debug", _keep_assertions)
    on_import("tilelang.language.eager.builder", _note_callers)
    on_import("tilelang.language.eager.builder", _keep_generated_source)


def _keep_assertions(module: ModuleType) -> None:
    """TileLang drops assertions if it has not found the toolkit when it was imported."""
    vars(module).update(_IS_CUDA_AVAILABLE=True)


def _keep_generated_source(module: ModuleType) -> None:
    """Don't log the Python that TileLang makes of a refused kernel: the error names the user's line."""
    logger: Any = getattr(module, "logger", None)
    if logger is not None:
        logger.addFilter(lambda record: not str(record.msg).startswith("Failed to build prim_func"))


def _note_callers(module: ModuleType) -> None:
    """Let statements of TileLang's macros also name the macro's caller; those of roles their own line."""
    builder: Any = getattr(module, "Builder", None)
    set_place = getattr(builder, "set_fileline", None)
    if set_place is None:  # another version of TileLang: such lines are found by reading
        return
    own = f"{Path(str(module.__file__)).parents[2]}{os.sep}"

    def set_fileline(self: Any, filename: str, lineno: int, name: str) -> None:  # noqa: ANN401
        if filename.startswith(own):
            callers = (
                place for place in reversed(self.macro_fileline_stack) if own not in place[0]
            )
            for file, line, _ in callers:
                filename = f"{filename}{CALLED_AT}{file}:{line}"
                break
        set_place(self, filename, lineno, name)

    builder.set_fileline = set_fileline
    find_frame = getattr(builder, "_current_stmt_frame", None)
    if find_frame is None:
        return

    def find_innermost(self: Any) -> object:  # noqa: ANN401
        """Skip roles: TileLang seeks statements of ``with T.ws(..)`` in its outer frame, without any."""
        frame = find_frame(self)
        while inner := getattr(frame, "frames", ()):
            frame = inner[-1]
        return frame

    builder._current_stmt_frame = find_innermost  # noqa: SLF001 - there is no public way
