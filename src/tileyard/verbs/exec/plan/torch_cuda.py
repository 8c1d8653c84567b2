"""Answers calls of ``torch.cuda``: one device, whose tensors lie in the host's memory, with the properties of
the GPUs that kernels are elaborated for. All work is done when a call returns, so streams have nothing to do.
"""

import contextlib
import functools
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tileyard.verbs.exec.plan.tally import Tally

CAPABILITY = (9, 0)
VERSION = "12.8"
NAME = "CPU (tileyard exec)"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MEMORY = os.sysconf("SC_PHYS_PAGES") * _PAGE


class Properties:
    """The result of ``get_device_properties``."""

    name = NAME
    major, minor = CAPABILITY
    total_memory = _MEMORY
    multi_processor_count = 132
    warp_size = 32
    max_threads_per_block = 1024
    max_threads_per_multi_processor = 2048
    regs_per_multiprocessor = 65536
    shared_memory_per_block = 49152
    shared_memory_per_block_optin = 232448
    shared_memory_per_multiprocessor = 233472
    L2_cache_size = 50 << 20
    is_integrated = False
    is_multi_gpu_board = False

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties(name='{NAME}', major={self.major}, minor={self.minor})"


def _constantly(value: object) -> Callable[..., object]:
    """A new function each time: torch's compiler does not accept one in place of several."""

    def answer(*_: object, **__: object) -> object:
        return value

    return answer


class Event:
    """A moment on this host's clock."""

    tally: Tally

    def __init__(self, *_: object, **__: object) -> None:
        self.at_ns: int | None = None

    def record(self, stream: object = None) -> None:
        """Record the current time."""
        self.at_ns = time.perf_counter_ns()

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds from this moment to another. Raises RuntimeError before both are recorded."""
        if self.at_ns is None or end.at_ns is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        self.tally.note_timer("torch.cuda.Event")
        return (end.at_ns - self.at_ns) / 1e6

    wait = _constantly(None)
    synchronize = _constantly(None)
    query = _constantly(True)


class Chosen(contextlib.AbstractContextManager[object]):
    """A ``with`` block on the only device or stream."""

    idx = 0

    def __init__(self, *_: object, **__: object) -> None:
        """The arguments have no effect."""

    def __exit__(self, *_: object) -> None:
        """Nothing was changed."""


class Stream(Chosen):
    """A queue in which nothing ever waits."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    priority = 0
    synchronize = _constantly(None)
    wait_event = _constantly(None)
    wait_stream = _constantly(None)
    query = _constantly(True)
    is_capturing = _constantly(False)

    def record_event(self, event: Event | None = None) -> Event:
        """An event with the current time."""
        event = event or Event()
        event.record()
        return event


class Graph:
    """Launches cannot be captured here: only a GPU's driver sees them."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("CUDA graphs need a GPU: tileyard exec cannot capture launches")


@contextlib.contextmanager
def marked(*_: object, **__: object) -> Iterator[None]:
    """A named range that is ignored."""
    yield


def answer_cuda(torch: ModuleType, tally: Tally) -> None:
    """Make ``torch.cuda`` answer for the CPU from here on, in all threads."""
    Event.tally = tally
    stream = Stream()

    def seed(number: int) -> None:
        torch.default_generator.manual_seed(int(number))

    answers: dict[str, object] = {
        **{name: _constantly(None) for name in _NOTHING_TO_DO},
        **{name: _constantly(value) for name, value in _CONSTANTS.items()},
        **{name: _constantly(stream) for name in ("current_stream", "default_stream")},
        **dict.fromkeys(("device", "device_of", "_DeviceGuard"), Chosen),
        **dict.fromkeys(("CUDAGraph", "graph"), Graph),
        **dict.fromkeys(("manual_seed", "manual_seed_all"), seed),
        **dict.fromkeys(("memory_allocated", "memory_reserved"), _resident_bytes),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved"), _most_resident_bytes),
        "get_device_properties": _constantly(Properties()),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
        "mem_get_info": lambda *_: (os.sysconf("SC_AVPHYS_PAGES") * _PAGE, _MEMORY),
        "stream": lambda given=None: given if isinstance(given, Stream) else Stream(),
        "StreamContext": Chosen,
        "Event": Event,
        "Stream": Stream,
        "ExternalStream": Stream,
    }
    _replace(torch.cuda, answers)
    _answer_accelerator(torch, stream)
    cuda = torch.cuda
    cuda.default_generators = (torch.default_generator,)
    for name in _TYPES:
        setattr(cuda, name, getattr(torch, name))
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(cuda.nvtx, name, _constantly(None))
    cuda.nvtx.range = marked
    torch.version.cuda = VERSION
    torch.backends.cudnn.is_acceptable = _constantly(False)
    for name in ("start", "stop", "init"):
        setattr(cuda.profiler, name, _constantly(None))
    cuda.profiler.profile = marked


def _replace(cuda: ModuleType, answers: dict[str, object]) -> None:
    parts = [part for part in vars(cuda).values() if isinstance(part, ModuleType)]
    parts = [cuda, *(part for part in parts if part.__name__.startswith(f"{cuda.__name__}."))]
    for name, answer in answers.items():
        original = vars(cuda).get(name)
        for part in parts:
            if part is cuda or (original is not None and vars(part).get(name) is original):
                setattr(part, name, answer)


def _answer_accelerator(torch: ModuleType, stream: Stream) -> None:
    """The same device under torch's newer name for any accelerator."""
    device = torch.device("cuda", 0)
    answers: dict[str, object] = {
        "is_available": True,
        "device_count": 1,
        "current_accelerator": device,
        "current_device_index": 0,
        "current_device_idx": 0,
        "current_stream": stream,
        **dict.fromkeys(("set_device_index", "set_device_idx", "set_stream", "synchronize")),
    }
    vars(torch.accelerator).update(
        {name: _constantly(answer) for name, answer in answers.items()},
        device_index=Chosen,
    )


def profile_host(torch: ModuleType, tally: Tally) -> None:
    """Make torch's profiler observe the CPU when it is asked to observe a GPU."""
    kinds = torch.profiler.ProfilerActivity
    begin = torch.profiler.profile.__init__

    @functools.wraps(begin)
    def begin_on_host(self: object, *, activities: Any = None, **options: Any) -> None:  # noqa: ANN401
        tally.note_timer("torch.profiler")
        if activities is not None:
            activities = {kind for kind in activities if kind != kinds.CUDA} or {kinds.CPU}
        begin(self, activities=activities, **options)

    torch.profiler.profile.__init__ = begin_on_host


_NOTHING_TO_DO = (
    *("init", "_lazy_init", "_lazy_call", "synchronize", "set_device", "set_stream", "empty_cache"),
    *("ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated"),
    *("reset_max_memory_cached", "set_per_process_memory_fraction", "seed", "seed_all"),
    *("reset_accumulated_memory_stats", "_sleep"),
)
_TYPES = (
    *("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "ByteTensor", "CharTensor"),
    *("ShortTensor", "IntTensor", "LongTensor", "BoolTensor"),
)
_CONSTANTS: dict[str, object] = {
    "is_available": True,
    "is_initialized": True,
    "is_bf16_supported": True,
    "is_current_stream_capturing": False,
    "_is_in_bad_fork": False,
    "can_device_access_peer": False,
    "device_count": 1,
    "current_device": 0,
    "get_device_name": NAME,
    "get_device_capability": CAPABILITY,
    "get_arch_list": ["sm_{}{}".format(*CAPABILITY)],
    "memory_stats": {},
    "memory_summary": "",
}


def _resident_bytes(*_: object, **__: object) -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def _most_resident_bytes(*_: object, **__: object) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
