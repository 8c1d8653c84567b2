"""Precompiled headers that all compile workers share, from run to run.

NVRTC reads the headers of TileLang's kernels in two to four seconds, and a kernel in half a second. It can
write down its memory once it has read the headers, and take that over in another process in which
everything stands at the same addresses: compile workers are started like that. Processes of another
kind, in which it stands elsewhere, have images of their own or, where addresses are random, none to
share. An image that does not fit after all is told by NVRTC, and not used again by who tried it.
"""

import contextlib
import ctypes
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tileyard.artifacts.keys import digest_parts
from tileyard.modes import make_folder, mode_in, open_file

IMAGE = "headers.pch"
_ADDR_NO_RANDOMIZE = 0x0040000
_UNFIT = "incompatible precompiled header"
_DIRECTIVE = re.compile(r"\s*(#.*)?$")


def split_source(source: str) -> tuple[str, str]:
    """The preprocessor lines that a source begins with, and the rest."""
    lines = source.splitlines(keepends=True)
    count = next((i for i, line in enumerate(lines) if not _DIRECTIVE.match(line.rstrip())), 0)
    return "".join(lines[:count]), "".join(lines[count:])


def find_layout(library: str, maps: Path = Path("/proc/self/maps")) -> str:
    """What tells apart processes in which things stand elsewhere: the address of a loaded library.

    Empty where addresses are random, or the library is not loaded.
    """
    personality = ctypes.CDLL(None).personality(0xFFFFFFFF)
    if personality < 0 or not personality & _ADDR_NO_RANDOMIZE:
        return ""
    lines = maps.read_text().splitlines()
    return next((line.partition("-")[0] for line in lines if library in line), "")


def is_unfit(log: str) -> bool:
    """Whether NVRTC says that it could not take over an image."""
    return _UNFIT in log


def find_image(caches: Path, headers: str, flags: Sequence[str]) -> Path:
    """Where the image of these headers, read with these flags, lies or is to lie."""
    key = digest_parts("pch", headers, *flags)
    return caches / f"pch-{key[:16]}" / IMAGE


@contextlib.contextmanager
def making(image: Path) -> Iterator[Path | None]:
    """Hold the right to make an image: where to write it, None if somebody has made it meanwhile.

    It stands in its place once the block is left without an error. Its time says when it was last used.
    """
    make_folder(image.parent.parent)
    lock_file = image.parent.with_name(f"{image.parent.name}.lock")
    with open(lock_file, "w", opener=open_file) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_folder(image.parent)  # under the lock: who collects garbage takes it, too
        if image.exists():
            yield None
            return
        draft = image.with_suffix(f".{os.getpid()}")
        try:
            yield draft
            if draft.exists():
                draft.chmod(mode_in(image.parent, 0o666))
                draft.replace(image)
        finally:
            draft.unlink(missing_ok=True)
