"""The target ``command``: runs a user's program as a build, and keeps the directory that it fills."""

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.copying import copy_file, remove_folder, scratch_folder
from tileyard.artifacts.manifest import Artifact, Build
from tileyard.artifacts.objects import digest_parts
from tileyard.artifacts.pins import locked_cache
from tileyard.base.errors import HomeError, TileyardError, UsageError
from tileyard.base.model import Device, Diagnostic, Outcome, Record, Step
from tileyard.base.modes import make_folder
from tileyard.processes.step_keepers import warm
from tileyard.processes.steps import StepOrder, describe_complaints, describe_end, insist_on
from tileyard.targets.base import NO_BINARIES, Binaries, HandOver, Loaded, Source
from tileyard.targets.command.given import Place, fill, fill_argv, find_site, give
from tileyard.targets.own_sources import digest_own_sources

LOOK_S = 0.05
"""Seconds between two looks at what Ninja has finished."""
BUILT = "built"
LOG = "build.log"
LOG_BYTES = 4 << 20
"""Bytes of a build's output that are kept in the log of a case."""


class NinjaLog:
    """What Ninja finishes from now on: its log in the build folder gets a line for each output, at once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".ninja_log"
        self._before = frozenset(self._read())

    def find_finished(self) -> set[str]:
        """The paths of the outputs, relative to the build folder."""
        # Ninja may write the whole log anew, with the lines that it had.
        fields = (line.split("\t") for line in self._read() if line not in self._before)
        return {field[3] for field in fields if len(field) > 4}

    def _read(self) -> list[str]:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return text.split("\n")[:-1]  # the last line may not be complete


class Products:
    """The files of several builds below one folder, and the builds handed over so far. ``wanted``
    are each build's paths; ``hand_over`` gets a build and a folder with copies of its files.
    """

    def __init__(
        self,
        cache: Path,
        wanted: Mapping[str, tuple[str, ...]],
        scratch: Path,
        hand_over: Callable[[str, Path], None],
    ) -> None:
        self.handed_over: set[str] = set()
        self._cache = cache
        self._wanted = wanted
        self._scratch = scratch
        self._tell = hand_over

    def take(self, build: str, into: Path) -> None:
        """Copy the files of a build, under the same names. Raises UsageError for one that is not there."""
        for path in self._wanted[build]:
            source = Path(os.path.realpath(self._cache / path))
            if not source.is_file():
                raise UsageError(f"build step: made no {path} in {{cache}}")
            make_folder((into / path).parent)
            copy_file(source, into / path, source.stat().st_mode & 0o777)

    def hand_over(self, build: str) -> None:
        """Hand a build over. Raises UsageError if incomplete or not to be kept, HomeError without room."""
        with scratch_folder(self._scratch) as folder:
            self.take(build, folder)
            self._tell(build, folder)
        self.handed_over.add(build)

    def hand_over_rest(self, builds: Iterable[str]) -> None:
        """Hand over those that are complete and were not handed over yet. Raises HomeError."""
        for build in builds:
            if self._wanted[build] and build not in self.handed_over:
                with contextlib.suppress(
                    UsageError
                ):  # it is built alone, which tells what is missing
                    self.hand_over(build)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """In the block, hand each build over once Ninja has finished it; failing ones can follow later."""
        log, ended = NinjaLog(self._cache), threading.Event()
        left = {build: paths for build, paths in self._wanted.items() if paths}

        def look() -> None:
            finished = log.find_finished()
            for build in [one for one, paths in left.items() if finished.issuperset(paths)]:
                del left[build]
                with contextlib.suppress(TileyardError, OSError):
                    self.hand_over(build)

        def watch() -> None:
            while left and not ended.wait(LOOK_S):
                look()

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()
            look()


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
