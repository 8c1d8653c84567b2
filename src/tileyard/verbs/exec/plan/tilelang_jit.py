"""Redirects TileLang's compilation to the target ``cpu``. Only its compiler and disk cache are replaced:
decorators, modes, profiler and tuner stay TileLang's.
"""

import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tileyard.frontend.chains import describe_params, find_outputs
from tileyard.frontend.tir_queries import for_target
from tileyard.ir.dtypes import array_name, name_of
from tileyard.ir.nodes import Tensor
from tileyard.targets.arguments import find_name
from tileyard.verbs.exec.plan.building import PRINTING, Builder, BuiltKernel
from tileyard.verbs.exec.plan.launches import Repeater, StandIns
from tileyard.verbs.exec.plan.tally import Tally
from tileyard.workers.golden import to_numpy

COMPILE = "_compile_and_create_adapter"
"""The method of a JITKernel that compiles if TileLang's own cache has no entry."""


class Adapter:
    """The callable inside a JITKernel. ``params`` are as in TileLang; it allocates and returns those at
    ``result_idx``. ``work`` is the same for kernels that do the same; ``source`` is the generated code.
    """

    def __init__(
        self,
        params: Sequence[object],
        result_idx: Sequence[int],
        run: Callable[..., object],
        source: str,
        work: object,
    ) -> None:
        self.params = list(params)
        self.result_idx = list(result_idx)
        self.work = work
        self.libpath: str | None = None
        self._run = run
        self._source = source
        returned = sorted(result_idx)
        self._order = [returned.index(position) for position in result_idx]
        self.func: Callable[..., object] = self.__call__

    def __call__(self, *args: object, **_: object) -> object:
        """Run once; returns the output, or a list of several. Keywords for TileLang's launch are ignored."""
        wanted = len(self.params) - len(self.result_idx)
        if len(args) != wanted:
            raise ValueError(f"Kernel expected {wanted} inputs, but {len(args)} are provided.")
        results = self._launch(args)
        if isinstance(results, tuple):
            return [results[place] for place in self._order]
        return results if self._order else []

    def _launch(self, args: tuple[object, ...]) -> object:
        return self._run(*args)

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The generated code."""
        return self._source

    def get_host_source(self) -> str:
        """Empty: kernels are called directly."""
        return ""


class CpuAdapter(Adapter):
    """A kernel of the CPU target, called by a script: its arguments may be None, or overlap."""

    def __init__(
        self, built: BuiltKernel, params: Sequence[object], result_idx: Sequence[int], tally: Tally
    ) -> None:
        super().__init__(params, result_idx, built.run, built.source, built.work)
        self._tally = tally
        given = [p for i, p in enumerate(built.signature.params) if i not in result_idx]
        self._stand_ins = StandIns(built.signature, built.lines, given, _make_tensor)
        roles = [param.role if isinstance(param, Tensor) else "" for param in given]
        self._read = [i for i, role in enumerate(roles) if role == "in"]
        self._written = [i for i, role in enumerate(roles) if role in ("out", "inout")]
        self._name = built.signature.name
        self._kept = built.kept
        self._names = [find_name(param) for param in given]
        outputs = {
            position: find_name(built.signature.params[position]) for position in sorted(result_idx)
        }
        is_quiet = not PRINTING.search(built.source)
        may = outputs and not self._written and is_quiet and tally.begin_repeating(built.work)
        self._repeater = Repeater(built.run, outputs) if may else None

    def _launch(self, args: tuple[object, ...]) -> object:
        args = tuple(self._stand_ins.fill(args)) if any(arg is None for arg in args) else args
        self._tally.note_launch()
        if self._kept is not None:
            self._kept.note_launch(dict(zip(self._names, args, strict=True)))
        given = tuple(self._separate(args))
        began = time.process_time()
        results = super()._launch(given)
        repeater, self._repeater = self._repeater, None
        if repeater is not None:
            took_s = time.process_time() - began
            outputs = [
                to_numpy(one) for one in (results if isinstance(results, tuple) else (results,))
            ]
            if found := repeater.find_old_reads(given, outputs, took_s):
                self._tally.note_unsteady(f"{self._name}: {found}")
        return self._as_tensors(results)

    def _separate(self, args: tuple[object, ...]) -> list[object]:
        """The arguments, with copies of those that are read where another is written: a kernel that runs in
        place reads the earlier values, as on a GPU.
        """
        separate = list(args)
        written = [_extent(args[place]) for place in self._written]
        for place in self._read if written else ():
            begin, end = _extent(args[place])
            if any(begin < other_end and other < end for other, other_end in written):
                separate[place] = args[place].clone()  # type: ignore[attr-defined]
        return separate

    def _as_tensors(self, results: object) -> object:
        """Results as torch tensors; a kernel without tensor arguments returns NumPy arrays."""
        if isinstance(results, tuple):
            return tuple(map(self._as_tensors, results))
        if not isinstance(results, np.ndarray):
            return results
        torch = sys.modules["torch"]
        raw = torch.from_numpy(results.view(f"i{results.dtype.itemsize}"))
        return raw.view(getattr(torch, name_of(results.dtype)))


def _make_tensor(shape: tuple[int, ...], dtype: str) -> object:
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, array_name(dtype)))


def _extent(tensor: Any) -> tuple[int, int]:  # noqa: ANN401 (torch's)
    """The address range of a tensor; empty if it is not a torch tensor."""
    if not hasattr(tensor, "data_ptr"):
        return 0, 0
    size, strides = tensor.shape, tensor.stride()
    last = sum((extent - 1) * stride for extent, stride in zip(size, strides, strict=True))
    begin: int = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size()


def compile_for_cpu(builder: Builder, tally: Tally) -> None:
    """Make TileLang compile with ``builder`` from here on, and keep nothing itself."""
    jit_kernel: Any = import_module("tilelang.jit.kernel").JITKernel

    def create_adapter(self: Any, func: Any, out_idx: Any) -> CpuAdapter:  # noqa: ANN401 (TileLang's)
        positions = find_outputs(func, out_idx)
        built = builder.build(for_target(func, self.target), positions)
        return CpuAdapter(built, describe_params(func), positions or [], tally)

    def cached(_: object, func: Any = None, out_idx: Any = None, **options: Any) -> object:  # noqa: ANN401
        context = options["backend_context"]
        return jit_kernel(
            func,
            out_idx=out_idx,
            execution_backend=context.execution_backend.name,
            target=context.target,
            target_host=context.target_host,
            verbose=options.get("verbose", False),
            pass_configs=options.get("pass_configs"),
            compile_flags=options.get("compile_flags"),
            backend_context=context,
        )

    setattr(jit_kernel, COMPILE, create_adapter)
    jit_kernel.get_kernel_source = lambda self, kernel_only=True: self.adapter.get_kernel_source()
    jit_kernel.get_host_source = lambda self: self.adapter.get_host_source()
    import_module("tilelang.cache.kernel_cache").KernelCache.cached = cached
