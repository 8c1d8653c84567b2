"""Stores content-addressed blobs and small keyed records in one directory, safe between processes.
Blobs are verified when read, and moved aside if damaged; nothing is unpickled. They are synced and
records are not: one that survived a power cut may name a blob, and a lost one costs one rebuild.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from tileyard.artifacts.pins import note_use
from tileyard.base.clock import Clock
from tileyard.base.decoding import decode_json
from tileyard.base.errors import DamagedError, HomeError
from tileyard.base.model import (
    BuildKey,
    CheckPolicy,
    Digest,
    GoldenKey,
    Kernel,
    MeasurementKey,
    RunKey,
    TimingPolicy,
    Value,
)
from tileyard.base.modes import make_folder, mode_in

JUDGING = 2
"""The version of the rules by which outputs are judged: verdicts by others are not used again."""
_CHUNK = 1 << 20
_CONTAINED_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
READ_ONLY = 0o444
_TEMPORARY_AGE_S = 86_400.0
_DAMAGED_AGE_S = 7 * 86_400.0
_RECORD_MAGIC = b"tileyard-record 1 "
_DIGEST = re.compile(r"[0-9a-f]{40}")
_RECORD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_CLOCK = Clock()
_Stamp = tuple[int, int, int]
T = TypeVar("T")


def digest_bytes(data: bytes) -> Digest:
    """The digest of a blob: 40 hexadecimal digits of SHA-256."""
    return digest_chunks((data,))


def digest_chunks(chunks: Iterable[bytes | memoryview]) -> Digest:
    """The digest of a blob that is read piece by piece: equal to that of the whole."""
    state = hashlib.sha256()
    for chunk in chunks:
        state.update(chunk)
    return Digest(state.hexdigest()[:40])


def chunks_of(file: BinaryIO) -> Iterator[bytes]:
    """The rest of an open file, piece by piece."""
    while chunk := file.read(_CHUNK):
        yield chunk


def digest_parts(*parts: str) -> Digest:
    """The digest of a sequence of texts; lengths are included, so that boundaries cannot move."""
    return digest_bytes(b"".join([b"%d:%s" % (len(data), data) for data in map(str.encode, parts)]))


def find_digests(data: bytes) -> Iterator[Digest]:
    """Everything in a record that looks like a digest. JSON and msgpack both store it as text."""
    for match in _CONTAINED_DIGEST.finditer(data):
        yield Digest(match[0].decode())


def canonical_json(value: object) -> str:
    """JSON with sorted keys: equal values give equal text."""
    return msgspec.json.encode(value, order="sorted").decode()


def build_key(kernel: Kernel, target: str, fingerprint: str, options: dict[str, Value]) -> BuildKey:
    """The key over what the compiler reads: the Program (or TIR), target, fingerprint and options."""
    source = kernel.tir or kernel.program
    passes = canonical_json((kernel.pass_options, kernel.flags)) if kernel.tir else ""
    passes += kernel.pipeline
    return BuildKey(
        digest_parts("build", source, passes, target, fingerprint, canonical_json(options))
    )


def run_key(build: BuildKey, golden: GoldenKey, check: CheckPolicy) -> RunKey:
    """The key over what decides whether an output is right, the rules of the comparison included."""
    return RunKey(digest_parts(f"run {JUDGING}", build, golden, canonical_json(check)))


def measurement_key(run: RunKey, device: str, timing: TimingPolicy | None) -> MeasurementKey:
    """The key over what decides a time: the run, the device's identity and the timing policy."""
    policy = "" if timing is None else canonical_json(msgspec.structs.replace(timing, group=""))
    return MeasurementKey(digest_parts("measurement", run, device, policy))


def paired_key(member: RunKey, others: Iterable[RunKey], device: str, role: str) -> MeasurementKey:
    """The key over one member of an interleaved batch: the other members matter, and its role."""
    return MeasurementKey(digest_parts("paired", member, *others, device, role))


class ObjectStore:
    """Blobs and records below ``root``, made by the first write: ``<2 hex>/<digest>`` (read-only)
    and ``records/<kind>/<2 characters>/<key>``. Uses are noted for ``pins``. For any threads and
    processes. ``clock`` tells old temporary files.
    """

    def __init__(self, root: Path, clock: Clock = _CLOCK) -> None:
        self.root = root
        self._clock = clock
        self._verified: dict[Digest, _Stamp] = {}
        self._swept = False

    # ---- blobs ------------------------------------------------------------------------------

    def put_bytes(self, data: bytes) -> Digest:
        """Store a blob. Raises HomeError if ``root`` cannot be written."""
        return self.put_parts((data,))

    def put_parts(self, parts: Sequence[bytes | memoryview]) -> Digest:
        """Store the concatenation of ``parts`` without building it. Raises HomeError."""
        digest = digest_chunks(parts)
        if not self._is_sound(digest):
            with self._writing():
                temporary = self._write_temporary(parts, sync=True)
                self._publish(temporary, self._blob(digest))
        return digest

    def put_file(self, path: Path) -> Digest:
        """Store a copy of a file's content. Raises HomeError; OSError if ``path`` is unreadable."""
        with path.open("rb") as file:
            digest = digest_chunks(chunks_of(file))
            if self._is_sound(digest):
                return digest
            file.seek(0)
            with self._writing():
                temporary = self._write_temporary(chunks_of(file), sync=True)
                # The copy decides, in case the file has changed since it was first read.
                with temporary.open("rb") as copy:
                    digest = digest_chunks(chunks_of(copy))
                self._publish(temporary, self._blob(digest))
        return digest

    def adopt(self, path: Path, digest: Digest) -> None:
        """Store a file of this digest, on the store's file system, by moving it. Raises HomeError."""
        if self._is_sound(digest):
            path.unlink()
            return
        with self._writing():
            path.chmod(mode_in(self.root, READ_ONLY))
            with path.open("rb") as file:
                os.fsync(file.fileno())
            self._publish(path, self._blob(digest))

    def get_bytes(self, digest: Digest) -> bytes:
        """A blob's content, verified. Raises DamagedError if it is missing or damaged."""
        with self._open(digest) as file:
            self._use(digest, file)
            data = file.read()
            if digest_bytes(data) != digest:
                raise self._set_aside(digest, file)
        return data

    def path(self, digest: Digest) -> Path:
        """A blob's path, verified once per process while unchanged. Raises DamagedError."""
        path = self._blob(digest)
        with self._open(digest) as file:
            is_known = self._verified.get(digest) == _stamp(os.fstat(file.fileno()))
            stamp = self._use(digest, file)
            if not is_known and digest_chunks(chunks_of(file)) != digest:
                raise self._set_aside(digest, file)
            self._verified[digest] = stamp
        return path

    def has(self, digest: Digest) -> bool:
        """Whether there is a blob with this digest; its content is verified when it is read."""
        path = self._blob(digest)
        try:
            status = path.stat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and self._note_use(path, status)

    # ---- records ----------------------------------------------------------------------------

    def put_record(self, kind: str, key: str, data: bytes) -> None:
        """Store ``data`` under ``kind`` and ``key``; the last writer wins. Raises HomeError."""
        head = _RECORD_MAGIC + _record_checksum(kind, key, data) + b"\n"
        with self._writing():
            temporary = self._write_temporary((head, data), sync=False)
            self._publish(temporary, self._record(kind, key))

    def has_record(self, kind: str, key: str) -> bool:
        """Whether there is such a record. Asking does not count as a use."""
        return self._record(kind, key).is_file()

    def find_keys(self, kind: str, prefix: str) -> list[str]:
        """The keys of records of a kind that begin with ``prefix``, of at least two characters."""
        _require(_RECORD_NAME, kind)
        _require(_RECORD_NAME, prefix)
        folder = self.root / "records" / kind / prefix[:2]
        return sorted(path.name for path in folder.glob(f"{prefix}*"))

    def get_record(self, kind: str, key: str) -> bytes | None:
        """The data last stored under this key; None if there is none, or it is torn or was altered."""
        path = self._record(kind, key)
        try:
            content = path.read_bytes()
            self._note_use(path, path.stat())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable("read", self.root, error) from error
        head, end, data = content.partition(b"\n")
        if not end or head != _RECORD_MAGIC + _record_checksum(kind, key, data):
            return None
        return data

    def decode_record(self, kind: str, key: str, form: type[T]) -> T | None:
        """The value of a record in JSON; None if there is none, or it has another form."""
        data = self.get_record(kind, key)
        try:
            return None if data is None else decode_json(data, form)
        except msgspec.DecodeError:
            return None

    # ---- inside -----------------------------------------------------------------------------

    def _blob(self, digest: Digest) -> Path:
        _require(_DIGEST, digest)
        return self.root / digest[:2] / digest

    def _record(self, kind: str, key: str) -> Path:
        _require(_RECORD_NAME, kind)
        _require(_RECORD_NAME, key)
        return self.root / "records" / kind / key[:2] / key

    def _note_use(self, path: Path, status: os.stat_result) -> bool:
        return note_use(self.root, path, status, self._clock.wall_s())

    def _use(self, digest: Digest, file: BinaryIO) -> _Stamp:
        """Note that a blob is used; return its stamp after that. Raises DamagedError if it is gone."""
        if not self._note_use(self._blob(digest), os.fstat(file.fileno())):
            raise self._missing(digest)
        return _stamp(os.fstat(file.fileno()))

    def _is_sound(self, digest: Digest) -> bool:
        with contextlib.suppress(DamagedError):
            if self.has(digest):
                self.path(digest)
                return True
        return False

    def _open(self, digest: Digest) -> BinaryIO:
        try:
            return self._blob(digest).open("rb")
        except FileNotFoundError:
            raise self._missing(digest) from None
        except OSError as error:
            raise _unusable("read", self.root, error) from error

    def _missing(self, digest: Digest) -> DamagedError:
        return DamagedError(
            f"object {digest} is missing from {self.root}", hint="run again to rebuild it"
        )

    def _set_aside(self, digest: Digest, file: BinaryIO) -> DamagedError:
        """Make room for a rebuild, unless another process has already put a new file there."""
        path = self._blob(digest)
        self._verified.pop(digest, None)
        aside = self.root / "damaged"
        # A store that cannot be written keeps the damaged file; the report stays the same.
        with contextlib.suppress(OSError):
            make_folder(aside)
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                path.replace(aside / f"{digest}.{os.getpid()}")
        return DamagedError(
            f"object {digest} in {self.root} does not have the content its name promises",
            hint="it was moved aside; run again to rebuild it",
        )

    def _write_temporary(self, chunks: Iterable[bytes | memoryview], sync: bool) -> Path:
        folder = self.root / "tmp"
        make_folder(folder)
        self._sweep_once()
        descriptor, name = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(chunks)
                file.flush()
                os.fchmod(file.fileno(), mode_in(folder, READ_ONLY))
                if sync:
                    os.fsync(file.fileno())
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return Path(name)

    def _publish(self, temporary: Path, destination: Path) -> None:
        try:
            make_folder(destination.parent)
            temporary.replace(destination)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _sweep_once(self) -> None:
        """Remove old leftovers of killed writers, once for each open store."""
        if self._swept:
            return
        self._swept = True
        now = self._clock.wall_s()
        for folder, age in (("tmp", _TEMPORARY_AGE_S), ("damaged", _DAMAGED_AGE_S)):
            for path in (self.root / folder).glob("*"):
                # Another process may sweep at the same moment.
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < now - age:
                        path.unlink()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _unusable("write to", self.root, error) from error


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _record_checksum(kind: str, key: str, data: bytes) -> bytes:
    return digest_chunks((f"{kind}/{key}\n".encode(), data)).encode()


def _require(form: re.Pattern[str], name: str) -> None:
    """Refuse names that could lead elsewhere: they become parts of paths, maybe from a foreign manifest."""
    if not form.fullmatch(name):
        raise DamagedError(f"{name!r} cannot be the name of a stored object")


def _unusable(verb: str, root: Path, error: OSError) -> HomeError:
    hint = "free some space" if error.errno == errno.ENOSPC else "set TILEYARD_HOME elsewhere"
    return HomeError(f"cannot {verb} {root}: {error.strerror or error}", hint=hint)
