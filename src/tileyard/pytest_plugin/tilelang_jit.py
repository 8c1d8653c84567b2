"""Hears of what TileLang compiles by itself, whether it is imported already or later."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULE, CLASS, METHOD = "tilelang.jit.kernel", "JITKernel", "_compile_and_create_adapter"
"""Where TileLang compiles what its own cache does not have."""


def watch_tilelang(begin: Callable[[str], None], end: Callable[[], None]) -> None:
    """Call ``begin`` with a kernel's name before TileLang compiles it, and ``end`` afterwards."""
    if MODULE in sys.modules:
        _patch(sys.modules[MODULE], begin, end)
    else:
        sys.meta_path.insert(0, _Finder(begin, end))


def _patch(module: ModuleType, begin: Callable[[str], None], end: Callable[[], None]) -> None:
    jit_kernel: Any = getattr(module, CLASS, None)
    compile_kernel: Any = getattr(jit_kernel, METHOD, None)
    if compile_kernel is None:  # another version of TileLang: it compiles unheard
        return

    def watched(self: object, func: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401
        __tracebackhide__ = True
        attrs = dict(func.attrs.items()) if getattr(func, "attrs", None) else {}
        begin(str(attrs.get("global_symbol") or "a kernel"))
        adapter = compile_kernel(self, func, *args, **kwargs)
        end()
        return adapter

    setattr(jit_kernel, METHOD, watched)


class _Finder(MetaPathFinder):
    """Finds that one module as ever, and has it patched once it is loaded."""

    def __init__(self, begin: Callable[[str], None], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, with a loader that goes on to patch it."""
        if fullname != MODULE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._begin, self._end)
        return spec


class _Loader(Loader):
    def __init__(
        self, loader: Loader, begin: Callable[[str], None], end: Callable[[], None]
    ) -> None:
        self._loader = loader
        self._begin = begin
        self._end = end

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _patch(module, self._begin, self._end)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)
