"""The target ``command``: runs a user's program as a build, and keeps the directory that it fills."""

import contextlib
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.keys import digest_parts
from tileyard.artifacts.manifest import Artifact, Build
from tileyard.artifacts.pins import locked_cache
from tileyard.base.errors import HomeError, TileyardError
from tileyard.base.model import Device, Diagnostic, Outcome, Record, Step
from tileyard.base.modes import make_folder
from tileyard.processes.step_keepers import warm
from tileyard.processes.steps import StepOrder, describe_complaints, describe_end, insist_on
from tileyard.targets.base import NO_BINARIES, Binaries, HandOver, Loaded, Source
from tileyard.targets.command.filling import Place, fill, fill_argv
from tileyard.targets.command.given import give
from tileyard.targets.command.products import Products
from tileyard.targets.command.step_site import find_site
from tileyard.targets.own_sources import digest_own_sources

BUILT = "built"
LOG = "build.log"
LOG_BYTES = 4 << 20
"""Bytes of a build's output that are kept in the log of a case."""


class BuildCommand(Record):
    """The text of such a kernel: the step, and the content of everything it reads, toolchain
    included. ``targets`` are a shared build's needed parts, whose files are the ``products`` in its
    cache, or all in its output. ``argv`` is empty if nothing is built. ``uses`` identifies what the
    step uses outside its suite.
    """

    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    inputs: str = ""
    inherits: tuple[str, ...] = ()
    inherits_all: bool = False
    uses: str = ""
    targets: tuple[str, ...] = ()
    products: tuple[str, ...] = ()


class CommandTarget:
    """Runs build steps. Each has a directory of its own below ``caches``."""

    name = "command"
    needs_tir = False
    caches = Path()

    def __init__(self) -> None:
        self.hand_over: HandOver = lambda program, folder: None

    def fingerprint(self) -> str:
        """Our own code and the machine; the step has to name everything else that a build depends on."""
        return digest_parts("command", digest_own_sources(__name__), platform.machine())

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Run the build step once per source. The process that waits for it enforces its time limit."""
        return [self._build(source, out / str(number)) for number, source in enumerate(sources)]

    def get_ready(self) -> None:
        """Start the process that forks the keepers of programs."""
        warm()

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """Refused: this target's artifacts are run as programs, not loaded."""
        raise AssertionError("a built directory cannot be loaded")

    def _build(self, source: Source, folder: Path) -> Build:
        own = source.elaborated.kernel.program
        command = msgspec.json.decode(own, type=BuildCommand)
        if not command.argv:
            return Build(outcome=Outcome.PASSED)
        others = {text: msgspec.json.decode(text, type=BuildCommand) for text in source.together}
        commands = {own: command, **others}
        built, temporary = folder / BUILT, folder / "tmp"

        def clear() -> None:
            for one in (built, temporary):
                remove_folder(one)
                make_folder(one)

        make_folder(built)
        make_folder(temporary)
        site = find_site()
        # A directory that is kept, for one build at a time, whatever is selected. Build tools
        # record in it where the sources are.
        cache = self.caches / digest_parts("cache", site.suite, command.cwd, *command.argv)[:16]
        wanted = {program: one.products for program, one in commands.items()}
        products = Products(cache, wanted, folder, self.hand_over)
        with locked_cache(cache):
            places: dict[str, Place] = {
                **site.places,
                "out": str(built),
                "cache": str(cache),
                "targets": sum(sorted(one.targets for one in commands.values()), ()),
                "threads": os.environ.get("OMP_NUM_THREADS", "1"),
            }
            try:
                env = {name: fill(value, places) for name, value in command.env.items()}
                step = Step(
                    argv=command.argv, inherits=command.inherits, inherits_all=command.inherits_all
                )
                order = StepOrder(
                    argv=fill_argv(command.argv, places),
                    env={**give(os.environ, step), **site.env, "TMPDIR": str(temporary), **env},
                    cwd=fill(command.cwd, places),
                    log=str(folder / LOG),
                    title="build",
                )
                with products.watched() if others else contextlib.nullcontext():
                    end = insist_on(order, clear)
                if end.ok:
                    products.hand_over_rest(others)
                if is_made := end.ok or own in products.handed_over:
                    products.take(own, built)
            except HomeError as error:
                reason = Diagnostic(message=error.message)
                return Build(outcome=Outcome.INFRA_ERROR, diagnostic=reason)
            except TileyardError as error:
                return _failed(str(error), _read_log(folder / LOG))
        with contextlib.suppress(OSError):
            remove_folder(temporary)
        log = _read_log(folder / LOG)
        if is_made:
            flag = describe_complaints(end, "build step ")
            said = Diagnostic(message=flag) if flag else None
            return Build(outcome=Outcome.PASSED, files=(f"{BUILT}/",), printed=log, diagnostic=said)
        return _failed(describe_end(end, order), log, is_lost=end.lost)


def names_products(program: str) -> bool:
    """Whether a build has products in its cache, instead of an output."""
    return bool(msgspec.json.decode(program, type=BuildCommand).products)


def _read_log(path: Path) -> str:
    """A build's output, the beginning and end of a very long one; empty if there was no room for it."""
    data = path.read_bytes() if path.is_file() else b""
    if len(data) > LOG_BYTES:
        half = LOG_BYTES // 2
        left_out = f"\n==== {len(data) - 2 * half} bytes are left out here\n".encode()
        data = data[:half] + left_out + data[-half:]
    return data.decode("utf-8", "replace")


def _failed(message: str, log: str, *, is_lost: bool = False) -> Build:
    outcome = Outcome.CRASHED if is_lost else Outcome.COMPILE_ERROR
    return Build(outcome=outcome, printed=log, diagnostic=Diagnostic(message=message))
