"""Hears of what a test's own process compiles while it runs, and of what it uses a device for outside of a block."""

from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any, Final

from tileyard.frontend.no_device import on_import
from tileyard.pytest_plugin.tilelang_jit import watch_tilelang
from tileyard.targets.registry import find_needs
from tileyard.workers.compiler import Compiler
from tileyard.workers.protocol import BuildKernels, CompilerReply, CompilerRequest

API: Final = "tileyard.api.kernels"
"""Where a compiled kernel becomes a function."""
TORCH: Final = "torch.cuda"
"""Where torch touches a GPU for the first time; which GPUs a process sees is settled then."""


def watch_compiles(begin: Callable[[str, str], None]) -> None:
    """From here on, call ``begin`` with name and key of every kernel that is about to be compiled, ours or TileLang's."""
    answer = Compiler.answer

    def watched(self: Compiler, request: CompilerRequest) -> CompilerReply:
        __tracebackhide__ = True
        if isinstance(request, BuildKernels):
            for wanted in request.kernels:
                begin(wanted.elaborated.kernel.name, wanted.build)
        return answer(self, request)

    Compiler.answer = watched  # type: ignore[method-assign]  # in this process alone
    watch_tilelang(begin=begin)


def watch_uses(use: Callable[[], None]) -> None:
    """From here on, call ``use`` before a kernel is run, and before torch touches a GPU for the first time.

    A kernel of ours for an accelerator is loaded after the first such call: loading touches its device.
    """
    on_import(API, partial(_watch_kernels, use=use))
    on_import(TORCH, partial(_watch_torch, use=use))
    watch_tilelang(run=use)


def _watch_kernels(module: ModuleType, use: Callable[[], None]) -> None:
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

    module.make_callable = watched  # type: ignore[attr-defined]  # in this process alone


def _watch_torch(module: ModuleType, use: Callable[[], None]) -> None:
    torch_cuda: Any = module
    touch = torch_cuda._lazy_init  # noqa: SLF001 - what all first touches of a GPU call

    def watched() -> None:
        __tracebackhide__ = True
        if not torch_cuda.is_initialized():
            use()
        touch()

    torch_cuda._lazy_init = watched  # noqa: SLF001
