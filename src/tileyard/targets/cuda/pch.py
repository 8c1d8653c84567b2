"""Precompiled headers that all compile workers share, from run to run.

NVRTC reads the headers of TileLang's kernels in two to four seconds, and a kernel in half a second. It can
write down its memory once it has read the headers, and take that over in another process in which
everything stands at the same addresses: compile workers are started like that. Where they do
not, NVRTC says so, and reads the headers again.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tileyard.artifacts.keys import digest_parts

IMAGE = "headers.pch"
_DIRECTIVE = re.compile(r"\s*(#.*)?$")


def split_source(source: str) -> tuple[str, str]:
    """The preprocessor lines that a source begins with, and the rest."""
    lines = source.splitlines(keepends=True)
    count = next((i for i, line in enumerate(lines) if not _DIRECTIVE.match(line.rstrip())), 0)
    return "".join(lines[:count]), "".join(lines[count:])


def find_image(caches: Path, headers: str, flags: Sequence[str]) -> Path:
    """Where the image of these headers, read with these flags, lies or is to lie."""
    key = digest_parts("pch", headers, *flags)
    return caches / f"pch-{key[:16]}" / IMAGE


@contextlib.contextmanager
def making(image: Path) -> Iterator[Path | None]:
    """Hold the right to make an image: where to write it, None if somebody has made it meanwhile.

    It stands in its place once the block is left without an error. Its time says when it was last used.
    """
    image.parent.parent.mkdir(parents=True, exist_ok=True)
    with image.parent.parent.joinpath(f"{image.parent.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        image.parent.mkdir(exist_ok=True)  # under the lock: who collects garbage takes it, too
        if image.exists():
            yield None
            return
        draft = image.with_suffix(f".{os.getpid()}")
        try:
            yield draft
            if draft.exists():
                draft.replace(image)
        finally:
            draft.unlink(missing_ok=True)
