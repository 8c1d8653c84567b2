"""Objects on their way between a run and an agent, in parts, so that nothing waits long behind one."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from tileyard.artifacts.objects import ObjectStore, digest_chunks
from tileyard.base.errors import DamagedError
from tileyard.base.model import Digest
from tileyard.base.modes import make_folder
from tileyard.engine.hosts.messages import ObjectPart

PART_BYTES: Final = 1 << 20


def read_parts(path: Path, digest: Digest, *, is_of_tree: bool = False) -> Iterator[ObjectPart]:
    """The parts of an object, in a file, in order, one at least."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        is_last = False
        while not is_last:
            data = file.read(PART_BYTES)
            is_last = file.tell() >= size or not data
            yield ObjectPart(digest=digest, data=data, is_last=is_last, is_of_tree=is_of_tree)


class Arrivals:
    """Objects that arrive in parts. Each is stored only once its content is what its digest says."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._folder = objects.root / "tmp"
        self._open: dict[Digest, tuple[Path, BinaryIO]] = {}
        self._failed: set[Digest] = set()

    def take(self, part: ObjectPart) -> bool:
        """Keep a part; whether its object is here now. Raises DamagedError, HomeError and OSError; the
        object's other parts are then ignored.
        """
        if part.digest in self._failed:
            if part.is_last:
                self._failed.remove(part.digest)
            return False
        try:
            return self._take(part)
        except OSError:
            if not part.is_last:
                self._failed.add(part.digest)
            if part.digest in self._open:
                self._remove(part.digest)
            raise

    def _take(self, part: ObjectPart) -> bool:
        if part.digest not in self._open:
            make_folder(self._folder)
            number, name = tempfile.mkstemp(dir=self._folder)
            self._open[part.digest] = Path(name), os.fdopen(number, "w+b")
        path, file = self._open[part.digest]
        file.write(part.data)
        file.flush()
        if not part.is_last:
            return False
        del self._open[part.digest]
        with file:
            file.seek(0)
            digest = digest_chunks(iter(partial(file.read, 1 << 20), b""))
        if digest != part.digest:
            path.unlink()
            raise DamagedError(f"object {part.digest} arrived with other content")
        self._objects.adopt(path, digest)
        return True

    def close(self) -> None:
        """Remove what has not arrived whole."""
        while self._open:
            self._remove(next(iter(self._open)))

    def _remove(self, digest: Digest) -> None:
        path, file = self._open.pop(digest)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it cannot write what is left either
            file.close()
