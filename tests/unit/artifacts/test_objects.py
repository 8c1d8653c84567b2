"""The object store: verified blobs, checksummed records, safe between processes."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileyard.artifacts.objects import (
    ObjectStore,
    build_key,
    canonical_json,
    digest_bytes,
    digest_chunks,
    digest_parts,
    measurement_key,
    paired_key,
    run_key,
)
from tileyard.base.errors import DamagedError, HomeError
from tileyard.base.model import (
    BuildKey,
    CheckPolicy,
    Digest,
    GoldenKey,
    Kernel,
    RunKey,
    TimingPolicy,
    Tolerance,
)

ONE_TMP_PATH = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
WRITER = """
import sys
from pathlib import Path
from tileyard.artifacts.objects import ObjectStore
objects = ObjectStore(Path(sys.argv[1]))
print("ready", flush=True)
for i in range(int(sys.argv[2])):
    digest = objects.put_bytes(b"%d" % (i % 50) * 50_000)
    objects.put_record("build", "shared", digest.encode() * 500)
    record = objects.get_record("build", "shared")
    assert record is not None and record == record[:40] * 500
    assert objects.get_bytes(record[:40].decode())
"""
TEXTS = st.lists(st.text("ab1:", max_size=3), max_size=3)
KERNEL = Kernel(name="gemm", program="program", tir="", pass_options={})


class FixedClock:
    """A clock that stands still."""

    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start."""
        return 0.0

    def wall_s(self) -> float:
        """Seconds since the epoch."""
        return self._wall_s


def spoil(path: Path, content: bytes) -> None:
    """Overwrite a blob in place, as a failing disk would."""
    path.chmod(0o644)
    path.write_bytes(content)


@given(data=st.binary(max_size=100))
@ONE_TMP_PATH
def test_blob_comes_back(tmp_path: Path, data: bytes) -> None:
    """What was put under a digest is read under it, through both ways of reading."""
    objects = ObjectStore(tmp_path / "objects")
    expected = data

    digest = objects.put_bytes(data)

    assert objects.get_bytes(digest) == expected
    assert objects.path(digest).read_bytes() == expected
    assert objects.has(digest)


def test_blob_is_read_only_and_named_by_its_digest(tmp_path: Path) -> None:
    """A blob lies at root/2 hex/digest and nobody can write to it by accident."""
    objects = ObjectStore(tmp_path)
    digest = objects.put_bytes(b"content")
    expected = tmp_path / digest[:2] / digest

    assert objects.path(digest) == expected
    assert expected.stat().st_mode & 0o777 == 0o400
    assert digest == digest_bytes(b"content")


def test_equal_content_is_stored_once(tmp_path: Path) -> None:
    """Putting a blob again leaves the first file in place."""
    objects = ObjectStore(tmp_path)
    expected = objects.path(objects.put_bytes(b"content")).stat().st_ino

    again = ObjectStore(tmp_path).put_parts((b"con", b"tent"))

    assert objects.path(again).stat().st_ino == expected


def test_file_is_stored_by_its_content(tmp_path: Path) -> None:
    """A file and equal bytes are one blob, and the file stays where it was."""
    source = tmp_path / "source"
    source.write_bytes(b"x" * 3_000_000)
    objects = ObjectStore(tmp_path / "objects")
    expected = digest_bytes(b"x" * 3_000_000)

    assert objects.put_file(source) == expected
    assert objects.put_file(source) == expected
    assert objects.get_bytes(expected) == source.read_bytes()


@pytest.mark.parametrize("read", ["get_bytes", "path"])
def test_damaged_blob_is_refused_moved_aside_and_made_anew(tmp_path: Path, read: str) -> None:
    """A changed blob is never returned; its place is free for a rebuild at once."""
    objects = ObjectStore(tmp_path)
    digest = objects.put_bytes(b"content")
    spoil(tmp_path / digest[:2] / digest, b"kontent")

    with pytest.raises(DamagedError, match=digest):
        getattr(objects, read)(digest)

    assert not objects.has(digest)
    assert [p.read_bytes() for p in (tmp_path / "damaged").iterdir()] == [b"kontent"]
    objects.put_bytes(b"content")
    assert objects.get_bytes(digest) == b"content"


def test_put_repairs_a_damaged_blob(tmp_path: Path) -> None:
    """A blob that is there but damaged is not taken for the one being put."""
    objects = ObjectStore(tmp_path)
    digest = objects.put_bytes(b"content")
    spoil(tmp_path / digest[:2] / digest, b"")
    expected = b"content"

    objects.put_bytes(b"content")

    assert objects.get_bytes(digest) == expected


def test_path_verifies_again_only_when_the_file_has_changed(tmp_path: Path) -> None:
    """Size, time and inode decide whether a blob that was good before is read once more."""
    objects = ObjectStore(tmp_path)
    digest = objects.put_bytes(b"content")
    path = objects.path(digest)
    before = path.stat()
    spoil(path, b"kontent")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert objects.path(digest) == path

    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(DamagedError):
        objects.path(digest)


def test_blob_that_was_rebuilt_meanwhile_is_not_moved_aside(tmp_path: Path) -> None:
    """A reader that finds damage leaves alone what another process has put there since."""
    objects = ObjectStore(tmp_path)
    digest = objects.put_bytes(b"content")
    path = objects.path(digest)
    spoil(path, b"kontent")
    with path.open("rb") as damaged:
        path.rename(tmp_path / "elsewhere")
        objects.put_bytes(b"content")

        objects._set_aside(digest, damaged)

    assert objects.get_bytes(digest) == b"content"


def test_missing_blob_is_named(tmp_path: Path) -> None:
    """Asking for a blob that is not there is damage of the store, not a crash."""
    digest = digest_bytes(b"never put")

    with pytest.raises(DamagedError, match=f"{digest} is missing"):
        ObjectStore(tmp_path / "none").get_bytes(digest)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "ab", "", "A" * 40, "a" * 41])
def test_name_that_is_no_digest_is_refused(tmp_path: Path, name: str) -> None:
    """A name from a foreign manifest cannot lead out of the store."""
    with pytest.raises(DamagedError, match="cannot be the name"):
        ObjectStore(tmp_path).get_bytes(Digest(name))


def test_record_comes_back_and_the_last_writer_wins(tmp_path: Path) -> None:
    """A record is read as it was last written, for its own kind and key only."""
    objects = ObjectStore(tmp_path)
    objects.put_record("build", "abc", b"one")
    objects.put_record("build", "abc", b"two\nlines")
    expected = b"two\nlines"

    assert objects.get_record("build", "abc") == expected
    assert objects.get_record("golden", "abc") is None
    assert objects.get_record("build", "abd") is None


@given(data=st.binary(max_size=30), at=st.integers(0, 10_000), bit=st.integers(0, 7))
@ONE_TMP_PATH
def test_record_with_any_bit_flipped_reads_as_absent(
    tmp_path: Path, data: bytes, at: int, bit: int
) -> None:
    """No damage to a record goes unnoticed."""
    objects = ObjectStore(tmp_path)
    objects.put_record("build", "key", data)
    path = tmp_path / "records" / "build" / "ke" / "key"
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1 << bit
    path.chmod(0o644)
    path.write_bytes(content)

    assert objects.get_record("build", "key") is None


@given(data=st.binary(max_size=30), kept=st.integers(0, 100))
@ONE_TMP_PATH
def test_torn_record_reads_as_absent(tmp_path: Path, data: bytes, kept: int) -> None:
    """A record of which only the beginning reached the disk is none."""
    objects = ObjectStore(tmp_path)
    objects.put_record("build", "key", data)
    path = tmp_path / "records" / "build" / "ke" / "key"
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[: min(kept, len(content) - 1)])

    assert objects.get_record("build", "key") is None


def test_record_put_under_another_key_reads_as_absent(tmp_path: Path) -> None:
    """A record that was copied to another name does not speak for it."""
    objects = ObjectStore(tmp_path)
    objects.put_record("build", "aaa", b"content")
    objects.put_record("build", "aab", b"other")
    folder = tmp_path / "records" / "build" / "aa"
    (folder / "aaa").replace(folder / "aab")

    assert objects.get_record("build", "aab") is None


def test_root_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """Where a file is in the way, the user reads which directory cannot be used."""
    (tmp_path / "file").write_bytes(b"")
    objects = ObjectStore(tmp_path / "file" / "objects")

    with pytest.raises(HomeError, match=r"cannot write to .*objects") as caught:
        objects.put_bytes(b"content")
    assert "\n" not in str(caught.value)
    with pytest.raises(HomeError):
        objects.put_record("build", "key", b"")


def test_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails half-way is reported, publishes nothing and keeps no temporary file."""
    objects = ObjectStore(tmp_path)

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(HomeError, match="free some space"):
        objects.put_bytes(b"content")
    assert not objects.has(digest_bytes(b"content"))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_abandoned_temporary_files_are_removed_after_a_day(tmp_path: Path) -> None:
    """What a killed writer left goes with the first write a day later, not sooner."""
    (tmp_path / "tmp").mkdir()
    old, recent = tmp_path / "tmp" / "old", tmp_path / "tmp" / "recent"
    for path, age_s in ((old, 86_500), (recent, 86_300)):
        path.write_bytes(b"")
        os.utime(path, (1e9 - age_s, 1e9 - age_s))
    expected = [recent]

    ObjectStore(tmp_path, clock=FixedClock(1e9)).put_bytes(b"content")

    assert list((tmp_path / "tmp").iterdir()) == expected


def start_writer(root: Path, count: int) -> "subprocess.Popen[bytes]":
    """A process that writes and reads blobs and one shared record."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), str(count)], stdout=subprocess.PIPE
    )


@pytest.mark.slow
def test_processes_may_write_the_same_things_at_once(tmp_path: Path) -> None:
    """Three writers of the same blobs and one record never see anything torn."""
    writers = [start_writer(tmp_path, 60) for _ in range(3)]
    expected = [0, 0, 0]

    for writer in writers:
        writer.communicate()

    assert [writer.returncode for writer in writers] == expected


@pytest.mark.slow
def test_killed_writer_leaves_only_whole_blobs(tmp_path: Path) -> None:
    """After SIGKILL every published blob verifies and the shared record is whole."""
    writer = start_writer(tmp_path, 1_000_000)
    assert writer.stdout is not None
    writer.stdout.readline()
    objects = ObjectStore(tmp_path)
    while objects.get_record("build", "shared") is None:
        assert writer.poll() is None
    writer.send_signal(signal.SIGKILL)
    writer.communicate()

    names = [path.name for path in tmp_path.glob("??/*")]

    assert names
    assert all(objects.get_bytes(Digest(name)) for name in names)
    assert objects.get_record("build", "shared") is not None


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=20), max_size=5))
def test_digest_does_not_see_how_a_blob_is_cut(chunks: list[bytes]) -> None:
    """The digest of chunks is that of the whole."""
    expected = digest_bytes(b"".join(chunks))

    assert digest_chunks(chunks) == expected


@settings(deadline=None, max_examples=60)
@given(TEXTS, TEXTS)
def test_digest_of_parts_keeps_their_borders(one: list[str], other: list[str]) -> None:
    """Two sequences of texts have the same digest only where they are the same sequence."""
    expected = one == other

    assert (digest_parts(*one) == digest_parts(*other)) is expected


def test_canonical_json_ignores_the_order_of_keys() -> None:
    """Equal dicts give equal text, however they were filled."""
    expected = '{"a":1,"b":2}'

    assert canonical_json({"b": 2, "a": 1}) == expected


@pytest.mark.parametrize(
    "other",
    [
        build_key(msgspec.structs.replace(KERNEL, program="else"), "cpu", "gcc 12", {"O": 3}),
        build_key(KERNEL, "sim", "gcc 12", {"O": 3}),
        build_key(KERNEL, "cpu", "gcc 13", {"O": 3}),
        build_key(KERNEL, "cpu", "gcc 12", {"O": 2}),
    ],
    ids=["program", "target", "fingerprint", "options"],
)
def test_build_key_covers_all_that_a_compiler_reads(other: BuildKey) -> None:
    """A change to the Program, the target, its fingerprint or an option is another build."""
    key = build_key(KERNEL, "cpu", "gcc 12", {"O": 3})

    assert key != other


def test_build_key_of_a_program_ignores_the_name_of_the_kernel() -> None:
    """Identical Programs are built once, whatever they are called."""
    expected = build_key(KERNEL, "cpu", "gcc", {})

    assert build_key(msgspec.structs.replace(KERNEL, name="mm"), "cpu", "gcc", {}) == expected


def test_build_key_of_tir_covers_pass_options() -> None:
    """Options of TileLang's passes change code only where TIR is what gets compiled."""
    tir = Kernel(name="k", tir="{}", pass_options={"a": 1})

    assert build_key(tir, "cuda", "f", {}) != build_key(
        msgspec.structs.replace(tir, pass_options={"a": 2}), "cuda", "f", {}
    )


def test_run_key_covers_the_check() -> None:
    """Another tolerance may give another outcome."""
    loose = CheckPolicy(tolerance=Tolerance(rtol=1.0, atol=1.0))

    assert run_key(BuildKey("b"), GoldenKey("g"), CheckPolicy()) != run_key(
        BuildKey("b"), GoldenKey("g"), loose
    )


def test_measurement_key_ignores_the_group() -> None:
    """A group decides when sampling is abandoned, not what a time means."""
    expected = measurement_key(RunKey("r"), "cpu", TimingPolicy(group="one"))

    assert measurement_key(RunKey("r"), "cpu", TimingPolicy(group="two")) == expected


def test_paired_key_covers_the_field() -> None:
    """Who else was timed in turn is part of an interleaved time."""
    first = paired_key(RunKey("a"), [RunKey("b")], "cpu", "20")
    second = paired_key(RunKey("a"), [RunKey("c")], "cpu", "20")

    assert first != second
