"""Observes what TileLang compiles and runs by itself, imported now or later. In a copy that reads
tests it compiles nothing and touches no device unasked.
"""

import copy
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import MethodType, ModuleType
from typing import Any, Final, NoReturn

from tileyard.frontend.no_device import on_import
from tileyard.targets.registry import find_needs
from tileyard.workers.compiler import Compiler
from tileyard.workers.protocol import BuildKernels, CompilerReply, CompilerRequest

RUNS: Final = ("__call__", "get_profiler")
"""Methods that run a kernel there, or are about to: a profiler runs it in its own way."""
PREFIX = "tilelang:"
"""Prefix of the keys of kernels that TileLang compiles."""
API: Final = "tileyard.api.kernels"
"""Where a compiled kernel becomes a function."""
TORCH: Final = "torch.cuda"
"""Where torch touches a GPU for the first time; that settles which GPUs a process sees."""


MODULE, CLASS, METHOD = "tilelang.jit.kernel", "JITKernel", "_compile_and_create_adapter"
"""Where TileLang compiles what is not in its own cache."""
JIT, FACTORY, CACHE = "tilelang.jit", "JITImpl", "is_cache_enabled"
"""The module of its decorator and ``compile``, the decorator's class, the function that uses its cache."""


def watch_tilelang(
    *,
    begin: Callable[[str, str], None] | None = None,
    end: Callable[[], None] = lambda: None,
    run: Callable[[], None] | None = None,
) -> None:
    """Call ``begin`` with name and key before TileLang compiles a kernel, ``end`` after a success,
    ``run`` before it is run. The key covers code and target, in any process.
    """
    on_import(MODULE, partial(_patch, begin=begin, end=end, run=run))


def find_tilelang_compile(function: object) -> Callable[..., object] | None:
    """A function that compiles as a call of ``function`` would and runs nothing; None if that
    compiles nothing, or TileLang keeps nothing of it.
    """
    jit = sys.modules.get(JIT)
    factory = getattr(jit, FACTORY, None)
    if jit is None or not isinstance(factory, type):
        return None
    if isinstance(function, MethodType) and function.__name__ == "compile":
        function = function.__self__
    compiles: Callable[..., object] | None = None
    if isinstance(function, factory):
        compiles = getattr(function, "compile", None)
    elif function is getattr(jit, "compile", None):
        compiles = jit.compile
    is_kept = getattr(getattr(jit, "env", None), CACHE, None)
    return compiles if is_kept is None or is_kept() else None


@contextmanager
def keep_factories(factories: Iterable[object]) -> Iterator[None]:
    """Undo what compiling changes in results of ``@tilelang.jit``: positions of outputs, a part of keys."""
    before = [(each, copy.copy(getattr(each, "out_idx", None))) for each in factories if each]
    yield
    for factory, positions in before:
        with suppress(AttributeError):
            factory.out_idx = positions  # type: ignore[attr-defined]  # TileLang's


def _patch(
    module: ModuleType,
    begin: Callable[[str, str], None] | None,
    end: Callable[[], None],
    run: Callable[[], None] | None,
) -> None:
    jit_kernel: Any = getattr(module, CLASS, None)
    before: dict[str, Callable[..., None]] = {}
    if begin is not None:
        before[METHOD] = lambda self, func, *_, **__: begin(_name(func), _key(self, func))
    if run is not None:
        before |= dict.fromkeys(RUNS, lambda *_, **__: run())
    for name, tell in before.items():
        method = getattr(jit_kernel, name, None)
        if method is not None:  # another version of TileLang: its compilations are not observed
            setattr(
                jit_kernel, name, _framed(tell, method, end if name == METHOD else lambda: None)
            )


def _framed(
    tell: Callable[..., None], method: Callable[..., object], end: Callable[[], None]
) -> Callable[..., object]:
    """A method that first calls ``tell`` with the same arguments, and ``end`` after a success."""

    def watched(*args: object, **kwargs: object) -> object:
        __tracebackhide__ = True
        tell(*args, **kwargs)
        answer = method(*args, **kwargs)
        end()
        return answer

    return watched


def is_tilelangs(key: str) -> bool:
    """Whether ``watch_tilelang`` makes such a key."""
    return key.startswith(PREFIX)


def _name(func: Any) -> str:  # noqa: ANN401 - TVM's
    attrs = dict(func.attrs.items()) if getattr(func, "attrs", None) else {}
    return str(attrs.get("global_symbol") or "a kernel")


def _key(kernel: Any, func: Any) -> str:  # noqa: ANN401 - TileLang's and TVM's
    parts = (func.script(), getattr(kernel, "target", ""), getattr(kernel, "pass_configs", ""))
    return PREFIX + hashlib.sha256(repr([str(part) for part in parts]).encode()).hexdigest()


class UnknownNameError(Exception):
    """An expression depends on values that are known only when the test runs."""


class Reading:
    """In a copy that only reads: nothing is evaluated that would compile, outside
    ``allow_compiling``, or need a device. ``compiled``: keys of what TileLang compiled.
    """

    def __init__(self) -> None:
        # TileLang and torch, which a run does not need if its tests compile nothing.
        from tileyard.api import kernels

        self.compiled: list[str] = []
        self._may_compile = False
        kernels.make_builder = _refuse  # the first call of each compilation
        watch_tilelang(begin=self._begin, run=_refuse)
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            torch.cuda._lazy_init = _refuse  # noqa: SLF001 - what all first touches of a GPU call

    @contextmanager
    def allow_compiling(self) -> Iterator[None]:
        """Allow compiling in the block, for what was found."""
        self._may_compile = True
        try:
            yield
        finally:
            self._may_compile = False

    def _begin(self, _kernel: str, key: str) -> None:
        if not self._may_compile:
            _refuse()
        self.compiled.append(key)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise UnknownNameError("a kernel")


def watch_compiles(
    begin: Callable[[str, str], None], end: Callable[[], None] = lambda: None
) -> None:
    """Call ``begin`` with name and key before any kernel is compiled, and ``end`` after the attempt."""
    answer = Compiler.answer

    def watched(self: Compiler, request: CompilerRequest) -> CompilerReply:
        __tracebackhide__ = True
        if not isinstance(request, BuildKernels):
            return answer(self, request)
        for wanted in request.kernels:
            begin(wanted.elaborated.kernel.name, wanted.build)
        reply = answer(self, request)
        end()
        return reply

    Compiler.answer = watched  # type: ignore[method-assign]  # in this process alone
    watch_tilelang(begin=begin, end=end)


def watch_uses(use: Callable[[], None]) -> None:
    """From here on, call ``use`` before a kernel is run, and before torch first touches a GPU."""
    on_import(API, partial(watch_kernels, use=use))
    on_import(TORCH, partial(watch_torch, use=use))
    watch_tilelang(run=use)


def watch_kernels(module: Any, use: Callable[[], None]) -> None:  # noqa: ANN401 - a module
    """Make the module's kernels call ``use`` before each launch, and an accelerator's before it is loaded."""
    make = module.make_callable

    def watched(artifact: object, target: str, *others: object) -> Callable[..., object]:
        @cache
        def load() -> Callable[..., object]:
            found: Callable[..., object] = make(artifact, target, *others)
            return found

        def run(*arguments: object) -> object:
            __tracebackhide__ = True
            use()
            return load()(*arguments)

        if find_needs(target).loads_ahead:
            load()
        return run

    module.make_callable = watched  # in this process alone


def watch_torch(module: Any, use: Callable[[], None]) -> None:  # noqa: ANN401 - a module
    """Make the first touch of a GPU through ``torch.cuda``, the ``module``, call ``use`` before."""
    touch = module._lazy_init  # noqa: SLF001 - what all first touches of a GPU call

    def watched() -> None:
        __tracebackhide__ = True
        if not module.is_initialized():
            use()
        touch()

    module._lazy_init = watched  # noqa: SLF001
