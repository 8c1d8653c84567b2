"""Derives identities: digests over content, chained from step to step. Never over paths, times or names."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

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

JUDGING = 2
"""The version of the rules by which outputs are judged: verdicts by others are not used again."""
_CHUNK = 1 << 20
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")


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
    for match in _DIGEST.finditer(data):
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
