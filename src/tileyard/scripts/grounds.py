"""Where the kernels of a tuner of TileLang's are built and run, and the study that it asks for."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tileyard.artifacts.objects import ObjectStore
from tileyard.model import Kernel, Record, TimingPolicy, Trial, Value
from tileyard.workers.protocol import AuthorReply, AuthorRequest


class StudyOrder(Record):
    """A study of a tuner: of which kernel, of how many configs, and what its caller asks for.

    ``timing`` is None and ``run_s`` 0 where that is left to the study, ``group_size`` is 0 likewise. ``devices`` is empty for all.
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
    """The trials of a study, the winner first, then by their times; and the winner's time in nanoseconds, 0 for none."""

    trials: tuple[Trial, ...]
    latency_ns: float


RunStudy = Callable[[StudyOrder, Callable[[AuthorRequest], AuthorReply]], Studied]
"""Carries a study out, and shows it to people. Raises TileyardError."""


class Ground(Protocol):
    """Where the kernels of a tuner are built and run."""

    objects: ObjectStore

    def study(self, order: StudyOrder, answer: Callable[[AuthorRequest], AuthorReply]) -> Studied:
        """See ``RunStudy``."""
        ...

    def rework(self, kernel: Kernel) -> Kernel:
        """What of a kernel matters here: those of which that is equal are built and timed once."""
        ...

    def timing(self, asked: TimingPolicy | None, backend: str) -> TimingPolicy | None:
        """How to time, where launches are timed by this ``backend`` of TileLang's. Raises ChainError for one that there is not."""
        ...

    def name_devices(
        self, numbers: Sequence[int | str] | None, *, are_several: bool | None
    ) -> tuple[str, ...]:
        """The devices that ``benchmark_devices`` and ``benchmark_multi_gpu`` mean. Raises ChainError for none that there is."""
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
        """Have a device to oneself."""
        ...
