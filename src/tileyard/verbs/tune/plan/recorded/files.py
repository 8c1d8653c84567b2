"""Reads and writes files of recorded spaces: ours, T4 and Kernel Tuner's caches, also compressed."""

import gzip
import re
import zlib
from pathlib import Path

from tileyard.base.decoding import draft_of
from tileyard.base.errors import UsageError
from tileyard.verbs.tune.plan.recorded.kernel_tuner import decode_cache
from tileyard.verbs.tune.plan.recorded.space import RecordedSpace, decode_space, encode_space
from tileyard.verbs.tune.plan.recorded.t4 import decode_t4, encode_t4

GZIP = b"\x1f\x8b"
BEGINNING = 4096
"""Bytes that tell the formats apart."""
HINT = "known are files of `tileyard trials export --as space`, T4, and caches of Kernel Tuner"


def read_space(file: str | Path) -> RecordedSpace:
    """The space in a file. Raises UsageError for one that is cut, foreign, or contradicts itself."""
    place = str(file)
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {place}: {error.strerror}") from None
    if data.startswith(GZIP):
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise UsageError(f"{place} is cut", "copy or write it again") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{place} is damaged: {error}", "copy or write it again") from None
    beginning = data.lstrip()[:BEGINNING]
    if beginning.startswith(b'{"tileyard":'):
        return decode_space(data, place)
    if b'"tune_params_keys"' in beginning:
        return decode_cache(data, place)
    if re.search(rb'"(results|schema_version|metadata)"', beginning):
        return decode_t4(data, place)
    raise UsageError(f"{place} is no recorded space", HINT)


def write_space(space: RecordedSpace, file: str | Path, *, is_t4: bool = False) -> None:
    """Write a space as ours or as T4, compressed if the file's name ends with ``.gz``. Equal spaces give
    equal files. Raises UsageError.
    """
    path = Path(file)
    data = encode_t4(space) if is_t4 else encode_space(space.header, space.configs)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        with draft_of(path) as draft:
            draft.write(data)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None
