"""Times of launches, taken by events on the device: one after another, from an empty cache, or as a graph."""

from collections.abc import Callable, Sequence
from typing import Any

from tileyard.targets.cuda.driver import Gpu
from tileyard.targets.cuda.memory import Memory

MOST_COLD, MOST_CAPTURED = 64, 64
"""How many launches of a sample begin with an empty cache, and how many one graph holds."""


class Stopwatch:
    """Launches on a stream of its own. ``launch`` puts one call on a stream."""

    def __init__(self, gpu: Gpu, memory: Memory, launch: Callable[[int], None]) -> None:
        self._gpu = gpu
        self._call = gpu.driver.call
        self._memory = memory
        self._launch = launch
        self._stream = gpu.stream
        self._flushes = False
        self._captures = False
        self._graph: tuple[int, Any] | None = None

    def choose(self, *, flush_l2: bool, graph: bool) -> None:
        """How samples are taken from now on. Raises MemoryError."""
        self._flushes, self._captures = flush_l2, graph
        if flush_l2:
            self._memory.flush_l2(self._stream)

    def run_once(self) -> None:
        """Launch and wait. Raises KernelFault."""
        self._launch(self._stream)
        self._call("cuStreamSynchronize", self._stream)

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """``samples`` times of ``launches`` launches each, in nanoseconds per launch. Raises KernelFault."""
        # Where each launch has events of its own, few of them are a sample already.
        pairs = min(launches, MOST_COLD) if self._flushes else 1
        each = 1 if self._flushes else launches
        events = [self._call("cuEventCreate", 0) for _ in range(2 * pairs)]
        try:
            return [self._sample(events, each) for _ in range(samples)]
        finally:
            for event in events:
                self._gpu.driver.api.cuEventDestroy(event)

    def _sample(self, events: Sequence[Any], each: int) -> float:
        """One sample; between the two events of each pair there are ``each`` launches, or a few more."""
        pairs = list(zip(events[::2], events[1::2], strict=True))
        captured = min(each, MOST_CAPTURED)
        replays = -(-each // captured)
        # A graph is made before the clock runs.
        graph = self._capture(captured) if self._captures else None
        for begin, end in pairs:
            if self._flushes:
                self._memory.flush_l2(self._stream)
            self._call("cuEventRecord", begin, self._stream)
            if graph is not None:
                for _ in range(replays):
                    self._call("cuGraphLaunch", graph, self._stream)
            else:
                for _ in range(each):
                    self._launch(self._stream)
            self._call("cuEventRecord", end, self._stream)
        self._call("cuEventSynchronize", events[-1])
        milliseconds = sum(float(self._call("cuEventElapsedTime", *pair)) for pair in pairs)
        count = len(pairs) * (each if graph is None else captured * replays)
        return milliseconds * 1e6 / count

    def _capture(self, launches: int) -> Any:  # noqa: ANN401 - the driver's own
        """So many launches as one graph; that of the last call is kept."""
        if self._graph is not None and self._graph[0] == launches:
            return self._graph[1]
        self._forget_graph()
        mode = self._gpu.driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", self._stream, mode)
        try:
            for _ in range(launches):
                self._launch(self._stream)
        finally:
            drawn = self._call("cuStreamEndCapture", self._stream)
        made = self._call("cuGraphInstantiate", drawn, 0)
        self._call("cuGraphDestroy", drawn)
        self._call("cuGraphLaunch", made, self._stream)  # the first one uploads it
        self._graph = (launches, made)
        return made

    def _forget_graph(self) -> None:
        if self._graph is not None:
            self._call("cuStreamSynchronize", self._stream)
            self._call("cuGraphExecDestroy", self._graph[1])
            self._graph = None
