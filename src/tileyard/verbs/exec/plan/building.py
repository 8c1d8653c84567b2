"""Turns elaborated kernels into functions on the CPU; earlier builds are found by their content."""

import dataclasses
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tileyard.artifacts.objects import digest_parts
from tileyard.base.errors import InvalidProgramError, UnsupportedError, UserCodeError
from tileyard.base.model import BuildKey, Digest, Limits, SourceLine
from tileyard.base.settings import Settings
from tileyard.devices.cpu import plain_cpu
from tileyard.frontend.bounds import require_inside
from tileyard.frontend.tilelang import make_kernel
from tileyard.frontend.tir_queries import attributes_of
from tileyard.ir.nodes import Program
from tileyard.show.words import annotate
from tileyard.targets.base import KnowsLines
from tileyard.targets.registry import find_needs, make_target
from tileyard.verbs.exec.plan.checking import KeptKernel, KernelChecker
from tileyard.verbs.exec.plan.grounds import as_cpu_work, read_wishes
from tileyard.verbs.exec.plan.tally import Refusal, Tally
from tileyard.workers.local_builder import LocalBuilder

TARGET = "cpu"
SOURCE = find_needs(TARGET).emits["c"]
PRINTING = re.compile(r"\bTY_PRINT\(report, \d")
"""The C of a kernel that prints."""


@dataclass(frozen=True, kw_only=True)
class BuiltKernel:
    """A kernel that can be called: ``run`` takes tensors and scalars as ``Loaded.as_callable`` describes.
    ``work`` is the same for kernels that differ only in threads and stages. ``kept`` is to be told of
    launches.
    """

    work: Digest
    signature: Program
    lines: Mapping[int, SourceLine]
    source: str
    run: Callable[..., object]
    kept: KeptKernel | None = None


class Builder:
    """Builds for ``cpu`` into the store of ``settings``, and has kernels checked; any thread may call."""

    def __init__(
        self, settings: Settings, tally: Tally, checker: KernelChecker | None = None
    ) -> None:
        self._checker = checker
        self._settings = settings
        self._tally = tally
        self._target = make_target(TARGET, settings.plugins)
        self._device = plain_cpu(settings.cores)
        self._lock = threading.Lock()
        self._builder: LocalBuilder | None = None
        self._ready: dict[tuple[BuildKey, bytes], BuiltKernel] = {}

    def build(self, func: Any, out_idx: Sequence[int] | None) -> BuiltKernel:  # noqa: ANN401 (TVM's)
        """Build one elaborated PrimFunc. ``out_idx`` are the positions of its outputs, if given. Raises
        UnsupportedError naming the operation and the user's line, ToolMissingError without a C compiler.
        """
        name = str(attributes_of(func).get("global_symbol", "kernel"))
        builder = self._know_target()
        try:
            require_inside(func, {})
            made = make_kernel(func, out_idx)
        except UnsupportedError as error:
            raise self._refuse(name, str(error.message), error) from None
        except UserCodeError as error:
            cause = UnsupportedError(error.message, file=error.file, line=error.line)
            raise self._refuse(name, error.message, cause) from None
        except InvalidProgramError as error:
            raise self._refuse(name, str(error.message)) from None
        self._tally.note_lines(name, made.notes)
        kept = None if self._checker is None else self._checker.check(name, made)
        made = dataclasses.replace(made, kernel=as_cpu_work(made.kernel))
        key = builder.key_of(made)
        # Another kernel with this Program has other source lines.
        wanted = (key, msgspec.json.encode(made.lines))
        with self._lock:
            ready = self._ready.get(wanted)
        if ready is None:
            try:
                artifact, is_built = builder.build(made)
            except UnsupportedError as error:
                raise self._refuse(name, error.message, error) from None
            self._tally.note_kernel(key, is_built=is_built)
            loaded = self._target.load(artifact, self._device)
            if isinstance(loaded, KnowsLines):
                loaded.know_lines(made.lines)
            source = artifact.file(SOURCE).read_text(encoding="utf-8")
            run, signature = loaded.as_callable(), made.signature
            shape = (signature.params, signature.dims, signature.grid)
            ready = BuiltKernel(
                work=digest_parts(artifact.manifest.binary, repr(shape)),
                signature=signature,
                lines=made.lines,
                source=annotate(source, made.lines),
                run=_after_python(run) if PRINTING.search(source) else run,
                kept=kept,
            )
            with self._lock:
                self._ready[wanted] = ready
        return ready

    def _know_target(self) -> LocalBuilder:
        with self._lock:
            if self._builder is None:
                wished = read_wishes(os.environ, len(self._settings.cores)).build_s
                self._builder = LocalBuilder(TARGET, self._settings, wished or Limits().build_s)
            return self._builder

    def _refuse(
        self, name: str, message: str, cause: UnsupportedError | None = None
    ) -> UnsupportedError:
        """The error for a kernel that has no CPU version; the tally records it."""
        cause = cause or UnsupportedError(message)
        operation, file, line = cause.operation, cause.file, cause.line
        self._tally.note_refusal(
            Refusal(kernel=name, message=message, operation=operation, file=file, line=line)
        )
        return UnsupportedError(
            f"compile_error: kernel {name} cannot run on the CPU: {message}",
            operation=operation,
            file=file,
            line=line,
        )


def _after_python(run: Callable[..., object]) -> Callable[..., object]:
    """A kernel that prints: earlier output of the script comes first, also in a pipe."""

    def launch(*arguments: object) -> object:
        sys.stdout.flush()
        return run(*arguments)

    return launch
