"""Takes files that a build tool makes in its own folder: when Ninja has finished them, or at the end."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tileyard.artifacts.copying import copy_file, scratch_folder
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.modes import make_folder

LOOK_S = 0.05
"""Seconds between two looks at what Ninja has finished."""


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
