"""Files that appear under their names whole or not at all, in folders where others may write, too."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` once the block is left without an error.

    It has the mode that the umask gives. Nobody can guess its name, and a link of that name is not
    followed. A link at ``path`` itself is replaced. Raises OSError.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with draft.open("xb") as file:
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
