"""Where the kernels of a TileLang tuner are built and run, and the study that it asks for. On a CPU kernels
that differ only in what has no effect there are built and timed once.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import Kernel, Record, TimingPolicy, Trial, Value
from tileyard.workers.protocol import AuthorReply, AuthorRequest

ON: Final = ("1", "true", "yes", "on")
NO_CACHE: Final = ("TILELANG_DISABLE_CACHE", "TILELANG_AUTO_TUNING_DISABLE_CACHE")
BUILD_LIMIT: Final = "TILELANG_COMPILE_TIMEOUT_SECONDS"
CORES: Final = "TILELANG_AUTO_TUNING_CPU_COUNTS"
SHARE: Final = "TILELANG_AUTO_TUNING_CPU_UTILITIES"
MOST_CORES: Final = "TILELANG_AUTO_TUNING_MAX_CPU_COUNT"


class StudyOrder(Record):
    """A tuner's study: kernel, number of configs, settings. ``timing`` None, ``run_s`` 0 and ``group_size`` 0
    leave the choice to the study; no ``devices`` mean all.
    """

    kernel: str
    arguments: dict[str, Value]
    configs: int
    is_checked: bool
    timing: TimingPolicy | None = None
    run_s: float = 0.0
    overlap: bool = True
    group_size: int = 0
    devices: tuple[str, ...] = ()


class Studied(Record):
    """Trials, the winner (or a disturbed study's leader) first, then by time; the study's ns, or 0."""

    trials: tuple[Trial, ...]
    latency_ns: float


RunStudy = Callable[[StudyOrder, Callable[[AuthorRequest], AuthorReply]], Studied]
"""Carries out a study, and shows it to people. Raises TileyardError."""


class Ground(Protocol):
    """Where the kernels of a tuner are built and run."""

    objects: ObjectStore

    def study(self, order: StudyOrder, answer: Callable[[AuthorRequest], AuthorReply]) -> Studied:
        """See ``RunStudy``."""
        ...

    def rework(self, kernel: Kernel) -> Kernel:
        """The part of a kernel that matters here: kernels with equal parts are built and timed once."""
        ...

    def timing(self, asked: TimingPolicy | None, backend: str) -> TimingPolicy | None:
        """How to time if this TileLang ``backend`` times launches. Raises ChainError if unknown."""
        ...

    def name_devices(
        self, numbers: Sequence[int | str] | None, *, are_several: bool | None
    ) -> tuple[str, ...]:
        """Devices by ``benchmark_devices`` and ``benchmark_multi_gpu``. Raises ChainError if unknown."""
        ...

    def compile(
        self,
        tuner: Any,  # noqa: ANN401 (TileLang's)
        func: Any,  # noqa: ANN401 (TVM's)
        config: Mapping[str, object],
        trial: Trial | None,
    ) -> Any:  # noqa: ANN401
        """The JITKernel of one config, which this trial has built if there is one."""
        ...

    def hold(self) -> AbstractContextManager[None]:
        """Hold a device exclusively."""
        ...


class Wishes(Record):
    """Settings of a study in TileLang's environment variables. None leaves the choice to the study."""

    reuse: bool = True
    build_s: float | None = None
    compile_workers: int | None = None


def read_wishes(environ: Mapping[str, str], cores: int) -> Wishes:
    """The settings of a study on so many ``cores``. Raises UsageError naming a variable that is no number."""

    def number(name: str) -> float:
        text = environ.get(name, "").strip()
        try:
            value = float(text or 0)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"{name}={text} is not a number")
        return value

    workers = min(int(number(CORES)), cores)
    if workers <= 0 and (share := number(SHARE)) > 0:
        workers = max(1, int(cores * share))
    if (most := int(number(MOST_CORES))) > 0:
        workers = min(workers, most) if workers > 0 else min(cores, most)
    build_s = number(BUILD_LIMIT)
    if build_s < 0:
        raise UsageError(f"{BUILD_LIMIT}={build_s:g} is below 0")
    return Wishes(
        reuse=not any(environ.get(name, "").strip().lower() in ON for name in NO_CACHE),
        build_s=build_s or None,
        compile_workers=workers if workers > 0 else None,
    )


_THREADS = re.compile(r"^    threads\(.*\)\n", re.MULTILINE)
_STAGES = re.compile(r"^( *for .* in pipelined\(.*), stages=\d+\)", re.MULTILINE)


def as_cpu_work(kernel: Kernel) -> Kernel:
    """``kernel`` without what has no effect on a CPU: its threads, and the depth of its pipelines."""
    program = _STAGES.sub(r"\1)", _THREADS.sub("", kernel.program))
    return msgspec.structs.replace(kernel, program=program)
