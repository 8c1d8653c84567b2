"""Observes what a test's own process compiles while it runs, and its uses of a device outside a block."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from tileyard.frontend.no_device import on_import
from tileyard.pytest_plugin.tilelang_jit import watch_tilelang
from tileyard.targets.registry import find_needs
from tileyard.workers.compiler import Compiler
from tileyard.workers.protocol import BuildKernels, CompilerReply, CompilerRequest

API: Final = "tileyard.api.kernels"
"""Where a compiled kernel becomes a function."""
TORCH: Final = "torch.cuda"
"""Where torch touches a GPU for the first time; that settles which GPUs a process sees."""


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
