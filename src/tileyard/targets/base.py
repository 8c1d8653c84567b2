"""The protocol of a target, which turns Kernels into Artifacts and loads Artifacts on a device."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.base.model import (
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
    """One thing to build: a kernel with its source lines (for messages only) and options.
    ``together`` are others' programs in the same build call, for a target that ``HandsOver``.
    """

    elaborated: Elaborated
    options: dict[str, Value] = {}
    together: tuple[str, ...] = ()


class Binaries(Protocol):
    """Binaries that were compiled before, by the source, compiler and flags that determine them."""

    def fetch(self, binary: str, folder: Path) -> bool:
        """Put the binary's files into ``folder``; False if it was not compiled before."""
        ...


class NoBinaries:
    """A ``Binaries`` without any binary."""

    def fetch(self, binary: str, folder: Path) -> bool:
        """Always False."""
        return False


class Launch(Protocol):
    """A loaded kernel bound to its arguments, ready to be launched any number of times."""

    def run(self) -> None:
        """Launch once and wait. Raises KernelFault, or MemoryError if there is no scratch memory."""
        ...

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """``samples`` times of ``launches`` launches each, in nanoseconds per launch."""
        ...

    def read(self) -> Sequence[Array]:
        """The written parameters (``out`` and ``inout``) in calling order."""
        ...

    def reset(self) -> None:
        """Restore the initial content of every ``inout`` parameter and poison every ``out``."""
        ...


@runtime_checkable
class TimedByPolicy(Protocol):
    """A launch that supports several ways of taking samples."""

    def time_by(self, policy: TimingPolicy) -> None:
        """Take all later samples by ``policy``. Raises MemoryError."""
        ...


@runtime_checkable
class RunsAgain(Protocol):
    """A launch that can be repeated with other content in its outputs, to show what depends on that."""

    def run_again(self, *, inverted: bool) -> None:
        """Restore ``inout``, fill ``out`` by ``fill_differently``, and launch once, without printing."""
        ...


@runtime_checkable
class Rounds(Protocol):
    """A launch that rounds factors: outputs are only as exact as the dtype in ``precisions`` for theirs."""

    @property
    def precisions(self) -> Mapping[str, str]:
        """The dtype of the precision, by the dtype of the output."""
        ...


@runtime_checkable
class KnowsLines(Protocol):
    """A loaded kernel that reports the user's line for each print and each failure."""

    def know_lines(self, lines: Mapping[int, SourceLine]) -> None:
        """Take the user's line of each statement of the Program, by the statement's number."""
        ...


Allocate = Callable[[tuple[int, ...], "np.dtype[np.generic]"], Array]
"""Allocates an array of this shape and dtype. Raises MemoryError."""


@runtime_checkable
class BindsInto(Protocol):
    """A kernel that can write its outputs into memory that others read, without a copy. Timed
    launches are bound by ``bind``: nobody reads their outputs.
    """

    def bind_into(
        self, arrays: Sequence[Array], scalars: Sequence[Value], allocate: Allocate
    ) -> Launch:
        """As ``bind``; ``read`` returns arrays that ``allocate`` made."""
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
        """Bind ``arrays``, one for each ``in`` and ``inout`` tensor in calling order; ``out``
        tensors are allocated and poisoned. Raises BindError if shapes or dtypes do not fit,
        MemoryError if memory is short.
        """
        ...

    def as_callable(self) -> Callable[..., object]:
        """The kernel as a function of its tensors and scalars, in calling order. Tensors are the
        caller's framework's, used in place if contiguous; missing ``out`` ones are allocated and
        returned, one or a tuple, in kind. Raises BindError if an array does not fit.
        """
        ...


class Target(Protocol):
    """Turns Kernels into Artifacts, and loads Artifacts on a leased device."""

    name: str
    needs_tir: bool

    def fingerprint(self) -> str:
        """A digest over compiler, flags and headers, part of every build key. Raises ToolMissingError."""
        ...

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Build in a compile worker with no device; one verdict per source, in order. Source ``i``
        writes its files below ``out/<i>``. Binaries that ``known`` has are not compiled again.
        """
        ...

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """Load in a runner under a lease. Never compiles. Raises DamagedError or BindError."""
        ...


@runtime_checkable
class Groups(Protocol):
    """A target that builds several sources in one ``build`` call for less. ``group_size`` is the
    most per group, 0 to let the target find it.
    """

    group_size: int


@runtime_checkable
class WarmsUp(Protocol):
    """A target with preparations that a process does once, before its builds."""

    def warm_up(self) -> None:
        """Import slow modules. May take seconds; may be left out."""
        ...


@runtime_checkable
class StartsPrograms(Protocol):
    """A target whose artifacts are run as programs, not loaded."""

    def get_ready(self) -> None:
        """Start the process that starts programs, so that the first program need not wait for it."""
        ...


@runtime_checkable
class KeepsCaches(Protocol):
    """A target whose tools keep files between builds, below the directory ``caches``."""

    caches: Path


HandOver = Callable[[str, Path], None]
"""Takes the program of a build and the folder with its files. Raises TileyardError if they cannot be kept."""


@runtime_checkable
class HandsOver(Protocol):
    """A target that hands over what it builds together one by one, also from another thread."""

    hand_over: HandOver


Aside = Callable[[], AbstractContextManager[None]]
"""A block that makes something many kernels share: its time is charged to none of them."""


@runtime_checkable
class MakesShared(Protocol):
    """A target whose builds make, within ``aside``, what later builds reuse."""

    aside: Aside
