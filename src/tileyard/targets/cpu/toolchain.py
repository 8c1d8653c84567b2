"""Finds the C compiler, asks for which machine it generates code, and runs it with a build's
options. They follow the target's name, as in ``cpu:x86-64-v3`` or ``cpu:vectors=128``; the defaults are the
fastest in benchmarks/cpu_kernels.py.
"""

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.artifacts.objects import digest_parts
from tileyard.base.errors import HomeError, ToolMissingError, UsageError
from tileyard.base.model import Record
from tileyard.processes.programs import run_program
from tileyard.processes.records import find_disk_fault
from tileyard.targets.cpu.machine import Machine, describe_machine, find_units

# ---- options --------------------------------------------------------------------------------------


_CHOICES = {
    "vectors": ("128", "256", "512"),
    "optimize": ("1", "2", "3"),
    "unroll": ("0", "1"),
    "debug": ("0", "1"),
    "shift": ("0", "16", "32", "48"),
    "sanitize": ("0", "1"),
    "units": ("0", "1", "2"),
}
"""Every option except the level, with its values."""


class CpuOptions(Record):
    """``vectors`` is the widest vector in bits, 0 for the CPU's; ``unroll`` unrolls all loops; ``debug``
    keeps variables and lines of the C, at the cost of speed; ``shift`` bytes before the code move it
    against cache lines; ``sanitize`` poisons tiles and reports reads of what nothing has written;
    ``units`` is 0 for sums by FMA in the order of k, 1 for the CPU's dot-product units, 2 for units in plain
    C, with all kinds of packing.
    """

    level: str = "native"
    vectors: int = 0
    optimize: int = 3
    unroll: int = 0
    debug: int = 0
    shift: int = 0
    sanitize: int = 0
    units: int = 1

    @property
    def name(self) -> str:
        """The options as written after the target's name; empty if all are the defaults."""
        usual = CpuOptions()
        others = [
            f"{key}={getattr(self, key)}"
            for key in _CHOICES
            if getattr(self, key) != getattr(usual, key)
        ]
        return ",".join([self.level, *others]) if others or self.level != usual.level else ""

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of the C compiler, those for vectors aside."""
        effort = ("-O0", "-g") if self.debug else (f"-O{self.optimize}",)
        unroll = ("-funroll-loops",) if self.unroll else ()
        shift = (f'-DTY_SHIFT="{self.shift}"',) if self.shift else ()
        plain = ("-DTY_UNITS=0",) if self.units != 1 else ()
        return (f"-march={self.level}", *effort, *unroll, *shift, *plain)


def parse_options(text: str) -> CpuOptions:
    """The options written after the target's name. Raises UsageError."""
    first, *rest = text.split(",")
    # No level of a compiler has "=": without one, options of this host's CPU follow at once.
    level, parts = ("native", [first, *rest]) if "=" in first else (first or "native", rest)
    values = {}
    for part in parts:
        key, _, value = part.partition("=")
        if value not in _CHOICES.get(key, ()):
            known = ", ".join(f"{name}={'|'.join(all_)}" for name, all_ in _CHOICES.items())
            raise UsageError(f"the target cpu has no option {part}", hint=f"options: {known}")
        values[key] = int(value)
    return CpuOptions(level=level, **values)


def spell_target(target: str) -> str:
    """The name of the target ``cpu`` with these options, the same in all spellings. Raises UsageError."""
    name = parse_options(target.partition(":")[2]).name
    return f"cpu:{name}" if name else "cpu"


def list_shifted(target: str) -> tuple[str, ...]:
    """The names of the targets that build the same as ``target``, with the code at other places."""
    options = parse_options(target.partition(":")[2])
    shifts = (int(text) for text in _CHOICES["shift"])
    others = (msgspec.structs.replace(options, shift=one) for one in shifts if one != options.shift)
    return tuple(f"cpu:{one.name or one.level}" for one in others)


# ---- the compiler ---------------------------------------------------------------------------------


FLAGS = (
    "-std=gnu11",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fPIC",
    "-g0",
    "-fno-sanitize=all",
    "-w",
)
"""They do not change results: no reassociation, no contraction, NaN and infinities are kept.

Memory may be read as another type than it was written as, because kernels have views.
"""

RUNTIME_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-g0", "-fno-sanitize=all", "-w")


KILLED = re.compile(
    r"fatal error: (Killed|Terminated) signal terminated program"
    r"|terminated with signal (9|15)\b|unable to execute command: (Killed|Terminated)"
)
"""Messages of GCC, its linker's driver and Clang if one of their programs was killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """How a run of the compiler ended; ``log`` is its whole output."""

    ok: bool
    log: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolchain:
    """A C compiler that works here, its flags, and the machine it generates code for. Compiling
    raises HomeError for a disk's error or a killed compiler, which say nothing about the source.
    """

    command: tuple[str, ...]
    flags: tuple[str, ...]
    version: str
    machine: Machine
    macros_digest: str

    def fingerprint(self) -> str:
        """A digest over everything that decides what a C text is compiled to."""
        parts = (self.version, *self.flags, *RUNTIME_FLAGS, self.macros_digest, repr(self.machine))
        return digest_parts("cc", *parts)

    def compile_kernel(self, folder: Path, source: str, output: str) -> Compiled:
        """Compile ``folder/source`` to the shared object ``folder/output``."""
        # A build for a debugger must not depend on its folder.
        place = (f"-fdebug-prefix-map={folder}=.",) if "-g" in self.flags else ()
        return self._run(folder, (*self.flags, *place, "-shared", "-o", output, source, "-lm"))

    def compile_runtime(self, folder: Path, source: str, output: str) -> Compiled:
        """Compile the thread runtime, which is the same for every CPU of an architecture."""
        return self._run(folder, (*RUNTIME_FLAGS, "-shared", "-o", output, source, "-lpthread"))

    def _run(self, folder: Path, arguments: tuple[str, ...]) -> Compiled:
        env = {**os.environ, "TMPDIR": str(folder)}
        try:
            done = run_program([*self.command, *arguments], folder, env)
        except TimeoutError as error:
            return Compiled(ok=False, log=f"the C compiler {error}")
        log = done.stdout + done.stderr
        if done.returncode and (fault := find_disk_fault(log)):
            raise HomeError(f"the C compiler cannot write: {fault}", "free some space")
        if -done.returncode in (signal.SIGKILL, signal.SIGTERM) or KILLED.search(log):
            raise HomeError("the C compiler, or a part of it, was killed")
        return Compiled(ok=done.returncode == 0, log=log)


def find_compiler(asked: str) -> tuple[str, ...]:
    """A C compiler's command: ``asked``, else cc, gcc, clang, or zig from PyPI. Raises ToolMissingError."""
    if asked:
        command = tuple(shlex.split(asked))
        if command and shutil.which(command[0]):
            return command
        raise ToolMissingError(
            f"the C compiler {asked!r} is not on this machine", hint="set CC to one that is"
        )
    for name in ("cc", "gcc", "clang"):
        if find_program(name):
            return (name,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-P", "-m", "ziglang", "cc")
    raise ToolMissingError(
        "no C compiler is on this machine: cc, gcc and clang are not in PATH",
        hint="install gcc or clang, run `pip install ziglang`, or set CC",
    )


def find_program(name: str) -> str | None:
    """A program on PATH, ignoring entries that lead into the working directory."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(filter(os.path.isabs, entries)))


def open_toolchain(asked: str, options: CpuOptions) -> Toolchain:
    """``find_compiler``'s, for this host or a CPU level. ToolMissingError if it fails or lacks the level."""
    command = find_compiler(asked)
    flags: tuple[str, ...] = (*FLAGS, *options.flags)
    macros, version = _ask(command, flags, options.level)
    machine = describe_machine(macros, is_native=options.level == "native")
    if options.vectors:
        width = min(machine.vector_bytes, options.vectors // 8)
        machine = msgspec.structs.replace(machine, vector_bytes=width)
    plain = dict.fromkeys(("bf16", "i8"), "plain C")
    units = ({}, find_units(machine.features), plain)[options.units]
    machine = msgspec.structs.replace(machine, units=units)
    if "__AVX__" in macros:
        width = machine.vector_bytes
        flags = (*flags, f"-mprefer-vector-width={8 * width}", f"-DTY_VECTOR={width}")
    return Toolchain(
        command=command,
        flags=flags,
        version=version,
        machine=machine,
        macros_digest=digest_parts(*(f"{name}={value}" for name, value in sorted(macros.items()))),
    )


def _ask(
    command: tuple[str, ...], flags: tuple[str, ...], level: str
) -> tuple[dict[str, str], str]:
    """The macros that the compiler predefines, and its version in one line."""
    arguments = [*command, *flags, "-dM", "-E", "-x", "c", "/dev/null"]
    try:
        # Not in the working directory: an empty entry of PATH would find someone else's program there.
        done = subprocess.run(arguments, cwd="/", capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolMissingError(f"the C compiler {command[0]} does not run: {error}") from error
    if done.returncode != 0:
        first = next(iter(done.stderr.strip().splitlines()), f"exit status {done.returncode}")
        raise ToolMissingError(f"{shlex.join(command)} cannot build for {level}: {first}")
    defined = (line.partition("#define ")[2] for line in done.stdout.splitlines())
    macros = {name: value for name, _, value in (text.partition(" ") for text in defined)}
    return macros, macros.get("__VERSION__", "unknown").strip('"')
