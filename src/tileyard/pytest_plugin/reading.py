"""A copy of this process in which tests are read: nothing in it compiles or touches a device unasked."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tileyard.pytest_plugin.tilelang_jit import TileLangWatch, watch_tilelang


class UnknownNameError(Exception):
    """An expression depends on what is known only when the test runs."""


class Reading:
    """In a copy that only reads: what would compile, or need a device, is not evaluated.

    Within ``allow_compiling`` TileLang may compile; ``compiled`` has the keys of what it did.
    """

    def __init__(self) -> None:
        # TileLang and torch, which a run whose tests compile nothing can do without.
        from tileyard.api import kernels

        self.compiled: list[str] = []
        self._may_compile = False
        kernels.lower_prim_func = _refuse  # type: ignore[attr-defined]
        watch_tilelang(TileLangWatch(begin=self._begin, end=lambda: None, run=_refuse))
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            torch.cuda._lazy_init = _refuse  # noqa: SLF001 - what all first touches of a GPU call

    @contextmanager
    def allow_compiling(self) -> Iterator[None]:
        """For what was found."""
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
