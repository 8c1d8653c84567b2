"""The target ``cpu``: Programs become C, and C becomes shared objects for this host or a CPU level."""

import os
import re
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.artifacts.objects import digest_parts
from tileyard.base.errors import InvalidProgramError, ToolMissingError, UnsupportedError, UsageError
from tileyard.base.model import Device, Diagnostic, Elaborated, Outcome, SourceLine
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.targets.base import NO_BINARIES, Binaries, Loaded, Source
from tileyard.targets.cpu.emit.program import generate
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.targets.cpu.machine import HEADER_FILE, KERNEL_FILE, RUNTIME_FILE, SOURCE_FILE
from tileyard.targets.cpu.toolchain import Toolchain, open_toolchain, parse_options, spell_target
from tileyard.targets.own_sources import digest_own_sources, first_error

_RUNTIME = Path(__file__).with_name("runtime.c")
HEADERS = Path(__file__).with_name("headers")

_INCLUDE = re.compile(r'#include "(\S+)"\n')


@cache
def header_text() -> str:
    """``tile.h`` with all of our headers that it includes, each once."""
    seen: set[str] = set()

    def part(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (HEADERS / name).read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda found: part(found[1]), text)

    return part("tile.h")


class CpuTarget:
    """Builds for this host's CPU, or a level such as ``x86-64-v3``; see ``CpuOptions``. ``cc`` is a
    C compiler's command; empty for ``CC``, or one that is found.
    """

    needs_tir = False

    def __init__(self, options: str = "native", cc: str = "") -> None:
        self._options = parse_options(options)
        self.name = spell_target(f"cpu:{options}")
        self._cc = cc or os.environ.get("CC", "")
        self._runtime = b""

    @cached_property
    def toolchain(self) -> Toolchain:
        """The compiler. Raises ToolMissingError."""
        return open_toolchain(self._cc, self._options)

    def _add_runtime(self, folder: Path) -> None:
        """Put ``runtime.so``, the same in every artifact and compiled once, into a folder with its header."""
        if not self._runtime:
            (folder / _RUNTIME.name).write_bytes(_RUNTIME.read_bytes())
            compiled = self.toolchain.compile_runtime(folder, _RUNTIME.name, RUNTIME_FILE)
            if not compiled.ok:
                first = next(iter(compiled.log.strip().splitlines()), "no message")
                raise ToolMissingError(f"the C compiler cannot build the runtime: {first}")
            self._runtime = (folder / RUNTIME_FILE).read_bytes()
        (folder / RUNTIME_FILE).write_bytes(self._runtime)

    def fingerprint(self) -> str:
        """A digest over the compiler, its flags, the CPU level, our C, and every module that generates C."""
        own = (digest_own_sources(__name__), header_text(), _RUNTIME.read_text())
        return digest_parts("cpu", self.toolchain.fingerprint(), *own)

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Build each source below ``out/<i>``; a kernel's error fails only its own build. Raises
        ToolMissingError, or UsageError for an unknown option.
        """
        return [self._build(source, out / str(i), known) for i, source in enumerate(sources)]

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """Load on the cores of ``device``, one pinned thread each. Raises DamagedError, BindError."""
        return CpuLoaded(artifact, device.cores, is_pinned=True)

    def _build(self, source: Source, folder: Path, known: Binaries) -> Build:
        if source.options:
            raise UsageError(f"target {self.name} has no option {next(iter(source.options))}")
        kernel, lines = source.elaborated.kernel, source.elaborated.lines
        if not kernel.program:
            refusal = kernel.refusal or Diagnostic(message=f"{kernel.name} has no Program")
            return Build(outcome=Outcome.COMPILE_ERROR, diagnostic=refusal)
        try:
            program = read_program(kernel.program)
            verify(program)
            generated = generate(
                program,
                self.toolchain.machine,
                lines,
                is_sanitized=bool(self._options.sanitize),
            )
        except (UnsupportedError, InvalidProgramError) as error:
            return Build(
                outcome=Outcome.COMPILE_ERROR, diagnostic=_diagnose(error, source.elaborated)
            )
        folder.mkdir(parents=True, exist_ok=True)
        built = Build(
            outcome=Outcome.PASSED,
            files=(KERNEL_FILE, SOURCE_FILE, HEADER_FILE, RUNTIME_FILE),
            details=msgspec.json.encode(generated.details).decode(),
            binary=digest_parts("binary", generated.text, self.fingerprint()),
        )
        if known.fetch(built.binary, folder):
            return built
        (folder / SOURCE_FILE).write_text(generated.text)
        (folder / HEADER_FILE).write_text(header_text())
        self._add_runtime(folder)
        compiled = self.toolchain.compile_kernel(folder, SOURCE_FILE, KERNEL_FILE)
        if not compiled.ok:
            return Build(
                outcome=Outcome.COMPILE_ERROR,
                printed=compiled.log,
                diagnostic=Diagnostic(
                    message=f"the C compiler failed: {first_error(compiled.log)}"
                ),
            )
        return msgspec.structs.replace(built, printed=compiled.log)


def _diagnose(error: UnsupportedError | InvalidProgramError, elaborated: Elaborated) -> Diagnostic:
    if isinstance(error, InvalidProgramError):
        where = elaborated.lines.get(error.statement)
        return Diagnostic(message=str(error), operation="verify", where=where)
    where = SourceLine(file=error.file, line=error.line) if error.file else None
    return Diagnostic(message=str(error), operation=error.operation, where=where)
