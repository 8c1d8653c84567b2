"""What a target is: something that turns Kernels into Artifacts and loads Artifacts on a device."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.model import (
    Device,
    Elaborated,
    Record,
    SourceLine,
    TensorSpec,
    TimingPolicy,
    Value,
)

Array = NDArray[np.generic]


class Source(Record):
    """One thing to build: a kernel with its source lines (for messages only) and options."""

    elaborated: Elaborated
    options: dict[str, Value] = {}


class Binaries(Protocol):
    """Binaries that were compiled before, by what decides them: source, compiler and flags."""

    def fetch(self, binary: str, folder: Path) -> bool:
        """Put the binary's files into ``folder``; False if it was not compiled before."""
        ...


class NoBinaries:
    """Nothing was compiled before."""

    def fetch(self, binary: str, folder: Path) -> bool:
        """Never there."""
        return False


class Launch(Protocol):
    """A loaded kernel bound to its arguments, ready to be launched any number of times."""

    def run(self) -> None:
        """Launch once and wait. Raises KernelFault, or MemoryError for want of scratch memory."""
        ...

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """``samples`` times of ``launches`` launches each, in nanoseconds per launch."""
        ...

    def read(self) -> Sequence[Array]:
        """The written parameters (``out`` and ``inout``) in calling order."""
        ...

    def reset(self) -> None:
        """Give every ``inout`` parameter its first content again and poison every ``out``."""
        ...


@runtime_checkable
class TimedByPolicy(Protocol):
    """A launch whose samples can be taken in several ways."""

    def time_by(self, policy: TimingPolicy) -> None:
        """Take samples as ``policy`` says from now on. Raises MemoryError."""
        ...


@runtime_checkable
class Rounds(Protocol):
    """A launch that rounds what it multiplies: outputs of a dtype are as exact as ``precisions`` says of it, which is another dtype."""

    @property
    def precisions(self) -> Mapping[str, str]:
        """Dtypes by dtypes."""
        ...


@runtime_checkable
class KnowsLines(Protocol):
    """A loaded kernel that says where the user wrote what it prints and what it fails at."""

    def know_lines(self, lines: Mapping[int, SourceLine]) -> None:
        """Take in where each statement of the Program came from, by its number."""
        ...


Allocate = Callable[[tuple[int, ...], "np.dtype[np.generic]"], Array]
"""Makes an array of this shape and dtype. Raises MemoryError."""


@runtime_checkable
class BindsInto(Protocol):
    """A loaded kernel whose outputs can be put where others read them, without a copy.

    Launches that are timed are bound by ``bind``: nobody reads what they write.
    """

    def bind_into(
        self, arrays: Sequence[Array], scalars: Sequence[Value], allocate: Allocate
    ) -> Launch:
        """As ``bind``; what ``read`` returns lies in arrays that ``allocate`` has made."""
        ...


NO_BINARIES = NoBinaries()


class Loaded(Protocol):
    """An artifact ready on a device."""

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        """The tensor parameters with concrete shapes, given the tensors' shapes. May raise BindError."""
        ...

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> Launch:
        """Bind ``arrays``, one for each ``in`` and ``inout`` tensor in calling order.

        ``out`` tensors are allocated, and poisoned so that elements never written are seen.
        Raises BindError where shapes or dtypes do not fit, MemoryError where memory is short.
        """
        ...

    def as_callable(self) -> Callable[..., object]:
        """The kernel as a function of its tensors and scalars, in calling order.

        Tensors are arrays of the caller's framework, used in place where they are contiguous.
        Without the ``out`` tensors these are allocated and returned, one or a tuple, as the same
        kind of array. Raises BindError where an array does not fit.
        """
        ...


class Target(Protocol):
    """Turns Kernels into Artifacts, and loads Artifacts on a leased device."""

    name: str
    needs_tir: bool

    def fingerprint(self) -> str:
        """Compiler, flags, headers: part of every build key. Raises ToolMissingError."""
        ...

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Build in a compile worker with no device; one verdict per source, in order.

        Source number ``i`` writes its files below ``out/<i>``. A binary that ``known`` has is not
        compiled again.
        """
        ...

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """Load in a runner under a lease. Never compiles. Raises DamagedError or BindError."""
        ...


@runtime_checkable
class Groups(Protocol):
    """A target for which several sources in one call of ``build`` cost less than each in its own.

    ``group_size`` is how many it may build as one at most, 0 for what it finds to pay.
    """

    group_size: int


@runtime_checkable
class WarmsUp(Protocol):
    """A target that does once, in a process that will build, what every build there needs."""

    def warm_up(self) -> None:
        """Import what takes long to import. May take seconds; harmless when left out."""
        ...


@runtime_checkable
class StartsPrograms(Protocol):
    """A target whose artifacts are run as programs, not loaded."""

    def get_ready(self) -> None:
        """Have there what starts programs, so that the first one need not wait for it."""
        ...


@runtime_checkable
class KeepsCaches(Protocol):
    """A target whose tools keep something from build to build, below the directory ``caches``."""

    caches: Path


Aside = Callable[[], AbstractContextManager[None]]
"""A block in which something is made that many kernels share: its time is held against none of them."""


@runtime_checkable
class MakesShared(Protocol):
    """A target that makes, within a build, what later builds find made; it does so within ``aside``."""

    aside: Aside
