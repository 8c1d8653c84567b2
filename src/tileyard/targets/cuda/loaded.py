"""Launches and times a CUDA artifact that is loaded on a device. Events on the device time
consecutive launches, ones from a flushed cache, or a graph.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tileyard.base.errors import KernelFault
from tileyard.base.model import TensorSpec, TimingPolicy, Value
from tileyard.ir.dtypes import fill_differently, find_dtype, poison
from tileyard.targets.arguments import check_arrays
from tileyard.targets.base import Allocate, Array
from tileyard.targets.cuda.callable import CudaCallable
from tileyard.targets.cuda.driver import Gpu
from tileyard.targets.cuda.launching import CudaModule, Plan
from tileyard.targets.cuda.memory import Buffer, Memory, bytes_of, guarded

MOST_COLD, MOST_CAPTURED = 64, 64
"""Most launches of a sample that begin with a flushed cache, and most launches in one graph."""


@functools.cache
def memory_of(gpu: Gpu) -> Memory:
    """The memory that all launches on a device share in this process."""
    return Memory(gpu)


class CudaLoaded(CudaModule):
    """An artifact loaded on one GPU."""

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        """The tensor parameters with concrete shapes, given the tensors' shapes. May raise BindError."""
        return self.specs_for(self.numbers(shapes, scalars))

    def as_callable(self) -> Callable[..., object]:
        """The kernel as a function on arrays on the device; see ``CudaCallable``."""
        return CudaCallable(self)

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> "CudaLaunch":
        """Bind ``arrays``, one for each ``in`` and ``inout`` tensor in calling order; they are
        copied to the device, read-only ones once. Raises BindError, MemoryError.
        """
        return self.bind_into(arrays, scalars, np.empty)

    def bind_into(
        self, arrays: Sequence[Array], scalars: Sequence[Value], allocate: Allocate
    ) -> "CudaLaunch":
        """As ``bind``; outputs are copied from the device to arrays that ``allocate`` made."""
        check_arrays(self.signature, arrays)
        self.gpu.activate()
        numbers = self.numbers([array.shape for array in arrays], scalars)
        plan, specs = Plan(self, numbers), self.specs_for(numbers)
        return CudaLaunch(self, plan, specs, arrays, allocate)


class CudaLaunch:
    """A kernel bound to its own memory on a device, which is guarded, with outputs poisoned."""

    def __init__(
        self,
        module: CudaModule,
        plan: Plan,
        specs: Sequence[TensorSpec],
        arrays: Sequence[Array],
        allocate: Allocate,
    ) -> None:
        self._allocate_host = allocate
        self._name = module.signature.name
        self.precisions = module.precisions
        self._gpu = module.gpu
        self._memory = memory_of(module.gpu)
        self._plan = plan
        self._specs = specs
        given = iter(arrays)
        self._sources = [None if spec.role == "out" else next(given) for spec in specs]
        self._require()
        self._first: dict[int, Buffer] = {}
        self._buffers = [self._allocate(number) for number in range(len(specs))]
        self._lent = [
            Buffer(self._gpu, size, f"workspace {number}")
            for number, size in enumerate(plan.workspaces)
        ]
        plan.aim(
            [buffer.address for buffer in self._buffers], [buffer.address for buffer in self._lent]
        )
        self._call = self._gpu.driver.call
        self._stream = self._gpu.stream
        self._policy = TimingPolicy()
        self._graph: tuple[int, Any] | None = None
        self.reset()

    def time_by(self, policy: TimingPolicy) -> None:
        """Flush the L2 cache before each launch, or capture launches, by ``policy``. Raises MemoryError."""
        self._policy = policy
        if policy.flush_l2:
            self._gpu.activate()
            self._memory.flush_l2(self._stream)

    def run(self) -> None:
        """Launch once and wait. Raises KernelFault for a driver's error, or a write outside a parameter."""
        with self._named():
            self._plan.launch(self._stream)
            self._call("cuStreamSynchronize", self._stream)
            try:
                for buffer in (*self._buffers, *self._lent):
                    buffer.check(self._name)
            except KernelFault:
                self._memory.forget_uploads()  # it may have written to any of them as well
                raise

    def run_again(self, *, inverted: bool) -> None:
        """See ``RunsAgain``; what the kernel itself prints cannot be held back."""
        self.reset()
        for spec, buffer in zip(self._specs, self._buffers, strict=True):
            if spec.role == "out":
                content = np.empty(spec.shape, find_dtype(spec.dtype).numpy)
                fill_differently(content, spec.dtype, inverted=inverted)
                with self._named():
                    buffer.upload(content)
        self.run()

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """``samples`` times of ``launches`` launches each, in nanoseconds per launch, by device events."""
        # If each launch has its own events, few launches are enough for a sample.
        pairs = min(launches, MOST_COLD) if self._policy.flush_l2 else 1
        each = 1 if self._policy.flush_l2 else launches
        with self._named():
            events = [self._call("cuEventCreate", 0) for _ in range(2 * pairs)]
            try:
                return [self._sample(events, each) for _ in range(samples)]
            finally:
                for event in events:
                    self._gpu.driver.api.cuEventDestroy(event)

    def read(self) -> Sequence[Array]:
        """Copies of the written parameters, in calling order."""
        found = []
        with self._named():
            for spec, buffer in zip(self._specs, self._buffers, strict=True):
                if spec.role != "in":
                    array = self._allocate_host(spec.shape, find_dtype(spec.dtype).numpy)
                    buffer.download(array)
                    found.append(array)
        return found

    def reset(self) -> None:
        """Restore the initial content of every ``inout`` parameter and poison every ``out``."""
        with self._named():
            for number, first in self._first.items():
                self._buffers[number].copy_from(first)

    def _require(self) -> None:
        """Raise MemoryError if the device has too little memory, before any is allocated."""
        own = [bytes_of(spec) for spec in self._specs if spec.role != "in"]
        # Written parameters take memory twice: for the current and for the initial content.
        wanted = sum(map(guarded, own)) + sum(map(guarded, self._plan.workspaces))
        wanted += sum(guarded(bytes_of(spec)) for spec in self._specs if spec.role == "out")
        self._memory.require(wanted, [array for array in self._sources if array is not None])

    def _allocate(self, number: int) -> Buffer:
        spec, source = self._specs[number], self._sources[number]
        if source is not None:
            uploaded = self._memory.upload(source, spec.name)
            if spec.role == "in":
                return uploaded
            self._first[number] = uploaded
        else:
            poisoned = Buffer(self._gpu, bytes_of(spec), spec.name)
            poisoned.upload(np.full(spec.shape, poison(spec.dtype), find_dtype(spec.dtype).numpy))
            self._first[number] = poisoned
        return Buffer(self._gpu, bytes_of(spec), spec.name)

    def _sample(self, events: Sequence[Any], each: int) -> float:
        """Take one sample; between the two events of each pair there are ``each`` launches, or a few more."""
        pairs = list(zip(events[::2], events[1::2], strict=True))
        captured = min(each, MOST_CAPTURED)
        replays = -(-each // captured)
        # A graph is made before timing begins.
        graph = self._capture(captured) if self._policy.graph else None
        for begin, end in pairs:
            if self._policy.flush_l2:
                self._memory.flush_l2(self._stream)
            self._call("cuEventRecord", begin, self._stream)
            if graph is not None:
                for _ in range(replays):
                    self._call("cuGraphLaunch", graph, self._stream)
            else:
                for _ in range(each):
                    self._plan.launch(self._stream)
            self._call("cuEventRecord", end, self._stream)
        self._call("cuEventSynchronize", events[-1])
        milliseconds = sum(float(self._call("cuEventElapsedTime", *pair)) for pair in pairs)
        count = len(pairs) * (each if graph is None else captured * replays)
        return milliseconds * 1e6 / count

    def _capture(self, launches: int) -> Any:  # noqa: ANN401 - the driver's own
        """A graph of this number of launches; the last graph is kept."""
        if self._graph is not None:
            known, graph = self._graph
            if known == launches:
                return graph
            self._call("cuStreamSynchronize", self._stream)
            self._call("cuGraphExecDestroy", graph)
            self._graph = None
        mode = self._gpu.driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", self._stream, mode)
        try:
            for _ in range(launches):
                self._plan.launch(self._stream)
        finally:
            drawn = self._call("cuStreamEndCapture", self._stream)
        made = self._call("cuGraphInstantiate", drawn, 0)
        self._call("cuGraphDestroy", drawn)
        self._call("cuGraphLaunch", made, self._stream)  # the first one uploads it
        self._graph = (launches, made)
        return made

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Make the device's context the thread's, and add the kernel's name to the driver's errors."""
        try:
            self._gpu.activate()
            yield
        except KernelFault as error:
            if self._name in error.message:
                raise
            raise type(error)(f"{self._name}: {error.message}", error.hint) from error
