"""Bundles: what is packed comes back, and nothing of what is damaged, hostile or foreign is kept."""

import contextlib
import errno
import hashlib
import io
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileyard.artifacts import bundle_file
from tileyard.artifacts.bundle_file import (
    MANIFEST,
    BundleManifest,
    BundleReader,
    BundleWriter,
    Content,
    Expected,
    PackedRecord,
    is_same_commit,
    member_header,
    member_name,
    private_folder,
)
from tileyard.artifacts.bundles import (
    Packing,
    Reference,
    check_bundle,
    open_bundle,
    read_manifest,
    write_bundle,
)
from tileyard.artifacts.compat import Host, Requirements
from tileyard.artifacts.folders import (
    Entry,
    Listing,
    TreeFile,
    TreeFolder,
    TreeLink,
    encode_listing,
)
from tileyard.artifacts.objects import ObjectStore, canonical_json, digest_bytes
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import (
    BundleError,
    DamagedError,
    HomeError,
    IncompatibleError,
    TileyardError,
    UsageError,
)
from tileyard.base.model import Digest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BARE = Host(machine="any")
FUZZ = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with equal files, a program, a link and an empty directory."""
    folder = tmp_path / "folder"
    (folder / "bin").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "bin" / "tool").write_text("#!/bin/sh\necho tool\n")
    (folder / "bin" / "tool").chmod(0o755)
    (folder / "one").write_bytes(b"same" * 700)
    (folder / "two").write_bytes(b"same" * 700)
    (folder / "link").symlink_to("bin/tool")
    return folder


def pack(folder: Path, objects: ObjectStore, output: Path, **changes: object) -> BundleManifest:
    """A bundle with a tree, a record that names it and a blob, and a case list."""
    tree = Trees(objects).put(folder)
    blob = objects.put_bytes(b"blob" * 100)
    objects.put_record("golden", "key", msgspec.json.encode({"tree": tree, "arrays": [blob]}))
    objects.put_bytes(b"nobody names me")
    packing = Packing(
        records=(Reference(kind="golden", key="key"),), commit=COMMIT, target="command"
    )
    packing = msgspec.structs.replace(packing, **changes)
    return write_bundle(packing, objects, output, b"the cases")


@pytest.fixture
def bundle(folder: Path, tmp_path: Path) -> Path:
    """A sound bundle."""
    pack(folder, ObjectStore(tmp_path / "made"), tmp_path / "x.tyb")
    return tmp_path / "x.tyb"


def snapshot(root: Path) -> set[tuple[str, bytes]]:
    """Everything below a folder."""
    return {
        (str(path.relative_to(root)), path.read_bytes() if path.is_file() else b"")
        for path in root.rglob("*")
    }


# ---- what is packed comes back --------------------------------------------------------------


def test_what_records_name_comes_back(bundle: Path, folder: Path, tmp_path: Path) -> None:
    """Records, the blobs and trees that they name, and the case list are in another store."""
    objects = ObjectStore(tmp_path / "other")
    expected = {"one": b"same" * 700, "two": b"same" * 700, "link": b"#!/bin/sh\necho tool\n"}

    opened = open_bundle(bundle, objects, Expected(kind="selection", commit=COMMIT), BARE)

    record = objects.get_record("golden", "key")
    assert record is not None
    named = msgspec.json.decode(record)
    place = Trees(objects).path(named["tree"])
    assert opened.cases == b"the cases"
    assert objects.get_bytes(named["arrays"][0]) == b"blob" * 100
    assert {name: (place / name).read_bytes() for name in expected} == expected
    assert (place / "empty").is_dir()
    assert (place / "bin" / "tool").stat().st_mode & 0o777 == 0o500
    assert not objects.has(digest_bytes(b"nobody names me"))
    assert list((tmp_path / "other").glob("tmp/*")) == []
    assert Trees(objects).put(folder) == named["tree"]


def test_equal_content_gives_equal_bytes(folder: Path, tmp_path: Path) -> None:
    """Another store, other times and another order make the same file, byte for byte."""
    pack(folder, ObjectStore(tmp_path / "a"), tmp_path / "a.tyb")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    (copy / "one").touch()
    pack(copy, ObjectStore(tmp_path / "b"), tmp_path / "b.tyb")
    expected = (tmp_path / "a.tyb").read_bytes()

    assert (tmp_path / "b.tyb").read_bytes() == expected


def test_bundle_can_be_opened_twice(bundle: Path, tmp_path: Path) -> None:
    """The second time finds everything there and leaves it as it is."""
    objects = ObjectStore(tmp_path / "other")
    open_bundle(bundle, objects, host=BARE)
    expected = snapshot(tmp_path / "other")

    open_bundle(bundle, objects, host=BARE)

    assert snapshot(tmp_path / "other") == expected


def test_record_of_ones_own_is_kept_while_it_is_whole(bundle: Path, tmp_path: Path) -> None:
    """A bundle replaces a record only where what the store's own one names is gone."""
    objects = ObjectStore(tmp_path / "other")
    own = objects.put_bytes(b"own")
    expected = own.encode()
    objects.put_record("golden", "key", expected)

    open_bundle(bundle, objects, host=BARE)
    assert objects.get_record("golden", "key") == expected

    objects.path(own).unlink()
    open_bundle(bundle, objects, host=BARE)
    assert objects.get_record("golden", "key") != expected


def test_manifest_is_read_without_the_content(bundle: Path) -> None:
    """What a bundle says of itself stands at its beginning."""
    manifest = read_manifest(bundle)
    expected = ("selection", COMMIT, "command")

    assert (manifest.kind, manifest.commit, manifest.target) == expected
    assert [c.digest for c in manifest.contents] == sorted(c.digest for c in manifest.contents)


def test_full_disk_makes_nothing_findable(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fills up half-way keeps no record and no rubbish, and says so in one line."""
    objects = ObjectStore(tmp_path / "other")

    def fail(_: Trees, __: Path) -> Digest:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Trees, "adopt", fail)

    with pytest.raises(HomeError, match="No space left") as caught:
        open_bundle(bundle, objects, host=BARE)
    assert "\n" not in str(caught.value)
    assert objects.get_record("golden", "key") is None
    expected: list[Path] = []
    assert list(objects.root.glob("tmp/*")) == expected


def test_damage_is_found_without_unpacking(bundle: Path) -> None:
    """Who only checks a bundle learns of damage anywhere in it."""
    check_bundle(bundle, host=BARE)
    content = bytearray(bundle.read_bytes())
    content[-1] ^= 1
    bundle.write_bytes(content)
    expected = "its bytes are not those that were written"

    with pytest.raises(BundleError, match=expected):
        check_bundle(bundle, host=BARE)


def test_nothing_to_pack_is_named(tmp_path: Path) -> None:
    """A record that is not there, and content that is gone, make no bundle."""
    objects = ObjectStore(tmp_path / "objects")
    for packing, error in (
        (Packing(records=(Reference(kind="build", key="none"),)), UsageError),
        (Packing(blobs=(digest_bytes(b"none"),)), DamagedError),
        (Packing(trees=(digest_bytes(b"none"),)), DamagedError),
    ):
        with pytest.raises(error):
            write_bundle(packing, objects, tmp_path / "x.tyb")

    assert list(tmp_path.glob("*.tyb*")) == []
    with pytest.raises(BundleError, match="cannot write"):
        write_bundle(Packing(), objects, tmp_path / "no" / "x.tyb")


def test_features_of_kernels_are_required(tmp_path: Path) -> None:
    """What the code of an artifact uses of a CPU is asked for before anything runs."""
    objects = ObjectStore(tmp_path / "objects")
    details = msgspec.json.encode({"features": ["avx2", "fma"]}).decode()
    objects.put_record("build", "k", msgspec.json.encode({"details": details}))
    expected = ("avx2", "fma", "sse2")

    manifest = write_bundle(
        Packing(
            records=(Reference(kind="build", key="k"),),
            requires=Requirements(cpu_features=("sse2",)),
        ),
        objects,
        tmp_path / "x.tyb",
    )

    assert manifest.requires.cpu_features == expected
    with pytest.raises(IncompatibleError, match="cpu features: avx2, fma, sse2"):
        check_bundle(tmp_path / "x.tyb", host=Host(machine=manifest.requires.machine))


# ---- another one than was asked for --------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected_of_it", "needed", "line"),
    [
        (Expected(commit="f" * 40), {}, "commit: f+ is needed, found 0123"),
        (Expected(target="cpu"), {}, "target: cpu is needed, found command"),
        (Expected(kind="toolchain"), {}, "kind: toolchain is needed, found selection"),
        (Expected(), {"machine": "vax"}, "architecture: vax is needed, found any"),
        (Expected(), {"cpu_level": "x86-64-v9"}, "cpu level: x86-64-v9 is needed, found none"),
        (
            Expected(),
            {"machine": "any", "cpu_features": ("amx",)},
            "cpu features: amx is needed, found a CPU without",
        ),
        (Expected(), {"glibc": "2.99"}, "glibc: 2.99 is needed, found none"),
        (Expected(), {"glibcxx": "3.9"}, r"libstdc\+\+ \(GLIBCXX\): 3.9 is needed, found none"),
        (Expected(), {"cxxabi": "1.9"}, r"libstdc\+\+ \(CXXABI\): 1.9 is needed, found none"),
        (Expected(), {"python": "cp27"}, "python: cp27 is needed, found none"),
        (Expected(), {"libraries": ("libx.so",)}, "library: libx.so is needed, found none"),
        (Expected(), {"driver": ">=5"}, "driver: >=5 is needed, found none"),
    ],
)
def test_bundle_that_does_not_fit_is_refused_before_it_is_unpacked(
    folder: Path, tmp_path: Path, expected_of_it: Expected, needed: dict[str, object], line: str
) -> None:
    """The refusal is one line, says what is needed and what was found, and nothing is written."""
    requires = msgspec.structs.replace(Requirements(), **needed)
    pack(folder, ObjectStore(tmp_path / "made"), tmp_path / "x.tyb", requires=requires)
    expected = line

    with pytest.raises(IncompatibleError, match=expected) as caught:
        open_bundle(tmp_path / "x.tyb", ObjectStore(tmp_path / "n" / "o"), expected_of_it, BARE)

    assert "\n" not in str(caught.value)
    assert not (tmp_path / "n").exists()


def test_abbreviated_commit_will_do() -> None:
    """Seven digits name a commit, six do not, in either direction and whatever their case."""
    expected = [True, True, True, False, False]

    assert [
        is_same_commit(COMMIT, COMMIT),
        is_same_commit(COMMIT[:7].upper(), COMMIT),
        is_same_commit(COMMIT, COMMIT[:9]),
        is_same_commit(COMMIT[:6], COMMIT),
        is_same_commit("f" * 40, COMMIT),
    ] == expected


# ---- damaged and hostile ones ---------------------------------------------------------------------


def refuse(path: Path, root: Path) -> str:
    """The one line with which a bundle is refused, the store being as it was."""
    objects = ObjectStore(root)
    objects.put_bytes(b"before")
    before = snapshot(root)
    with pytest.raises(BundleError) as caught:
        open_bundle(path, objects, host=BARE)
    assert "\n" not in str(caught.value)
    assert {item for item in snapshot(root) if item[0] != "tmp"} == {
        item for item in before if item[0] != "tmp"
    }
    return str(caught.value)


@pytest.mark.slow
@given(data=st.data())
@FUZZ
def test_any_flipped_bit_is_refused(
    bundle: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever bit of a bundle turns, it is refused in one line and nothing of it is kept."""
    content = bytearray(bundle.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    base = tmp_path_factory.mktemp("flipped")
    (base / "y.tyb").write_bytes(content)

    assert "y.tyb" in refuse(base / "y.tyb", base / "objects")


@pytest.mark.slow
@given(data=st.data())
@FUZZ
def test_any_cut_or_changed_length_is_refused(
    bundle: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A bundle that ends early, goes on, or has bytes put in or taken out is none."""
    content = bundle.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    until = data.draw(st.integers(at, len(content)))
    changed = content[:at] + data.draw(st.binary(max_size=40)) + content[until:]
    if changed == content:
        return
    base = tmp_path_factory.mktemp("cut")
    (base / "y.tyb").write_bytes(changed)

    assert "y.tyb" in refuse(base / "y.tyb", base / "objects")


@pytest.mark.slow
@given(data=st.binary(max_size=2000))
@FUZZ
def test_bytes_of_any_kind_are_no_bundle(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """What was never a bundle is refused in one line, in a good wrapping too."""
    base = tmp_path_factory.mktemp("any")
    (base / "y.tyb").write_bytes(data)
    assert "y.tyb" in refuse(base / "y.tyb", base / "objects")

    (base / "y.tyb").write_bytes(sign(zstandard.compress(data)))
    assert "y.tyb" in refuse(base / "y.tyb", base / "objects")


def sign(body: bytes) -> bytes:
    """A compressed body with the foot that belongs to it."""
    foot = b"\x5e\x2a\x4d\x18" + (32).to_bytes(4, "little")
    return body + foot + hashlib.sha256(body).digest()


@pytest.mark.slow
@given(data=st.data())
@FUZZ
def test_altered_archive_that_is_signed_anew_never_breaks_its_reader(
    bundle: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Who can sign can alter what a manifest says, and gets one line or a sound store for it."""
    archive = zstandard.ZstdDecompressor().decompressobj().decompress(bundle.read_bytes())
    at = data.draw(st.integers(0, len(archive)))
    until = data.draw(st.integers(at, min(len(archive), at + 30)))
    changed = archive[:at] + data.draw(st.binary(max_size=30)) + archive[until:]
    base = tmp_path_factory.mktemp("altered")
    (base / "y.tyb").write_bytes(sign(zstandard.compress(changed)))
    objects = ObjectStore(base / "home" / "objects")
    refusal = ""

    try:
        open_bundle(base / "y.tyb", objects, host=BARE)
    except TileyardError as error:
        refusal = str(error)

    assert refusal.isprintable()
    assert (base / "home").exists() is not bool(refusal)
    expected = [digest_bytes(path.read_bytes()) for path in objects.root.glob("??/*")]
    assert sorted(expected) == sorted(path.name for path in objects.root.glob("??/*"))


def forge(path: Path, manifest: bytes | BundleManifest, members: dict[str, bytes]) -> None:
    """A bundle with this manifest and these members, as an attacker would write it."""
    head = manifest if isinstance(manifest, bytes) else canonical_json(manifest).encode()
    with path.open("wb") as file:
        writer = BundleWriter(file)
        writer.add(MANIFEST, len(head), (head,))
        for name, data in members.items():
            writer.add(name, len(data), (data,))
        writer.finish()


def manifest_of(*contents: bytes, **changes: object) -> BundleManifest:
    """A manifest with these contents, all of them blobs."""
    sizes = {digest_bytes(data): len(data) for data in contents}
    made = BundleManifest(
        kind="selection",
        commit="",
        toolchain="",
        target="",
        requires=Requirements(),
        contents=tuple(Content(digest=d, size=sizes[d]) for d in sorted(sizes)),
        blobs=tuple(sorted(sizes)),
    )
    return msgspec.structs.replace(made, **changes)


def members_of(*contents: bytes) -> dict[str, bytes]:
    """Members as an honest bundle has them."""
    named = {digest_bytes(data): data for data in contents}
    return {member_name(digest): named[digest] for digest in sorted(named)}


def test_forged_bundle_with_honest_content_is_opened(tmp_path: Path) -> None:
    """The forgeries below are refused for what is wrong with them and for nothing else."""
    forge(tmp_path / "y.tyb", manifest_of(b"a", b"b"), members_of(b"a", b"b"))
    objects = ObjectStore(tmp_path / "objects")
    expected = b"a"

    open_bundle(tmp_path / "y.tyb", objects, host=BARE)

    assert objects.get_bytes(digest_bytes(b"a")) == expected


def hostile_members() -> Iterator[tuple[str, BundleManifest | bytes, dict[str, bytes], str]]:
    """Bundles whose members or manifests are not what they should be, and what is said of them."""
    name = member_name(digest_bytes(b"a"))
    entry = Content(digest=digest_bytes(b"a"), size=1)
    yield "traversal", manifest_of(b"a"), {"../../etc/x": b"a"}, "is not at the place"
    yield "absolute", manifest_of(b"a"), {"/etc/x": b"a"}, "is not at the place"
    yield "wrong digest", manifest_of(b"a"), {name: b"b"}, "name promises"
    yield "missing member", manifest_of(b"a", b"b"), {name: b"a"}, "is not at the place"
    yield "further member", manifest_of(b"a"), {name: b"a", "x": b""}, "contains more"
    yield "larger member", manifest_of(b"a"), {name: b"a" * 9}, "is not at the place"
    yield "no members", manifest_of(b"a"), {}, "is not at the place"
    yield "duplicate", manifest_of(b"a", contents=(entry, entry)), {name: b"a"}, "not different"
    yield (
        "no digest",
        manifest_of(contents=(Content(digest=Digest("../../../x"), size=1),)),
        {"contents/../../../x": b"a"},
        "not a digest",
    )
    yield (
        "huge",
        manifest_of(contents=(Content(digest=digest_bytes(b"a"), size=1 << 40),)),
        {name: b"a"},
        "trusted with",
    )
    yield (
        "negative",
        manifest_of(contents=(Content(digest=digest_bytes(b"a"), size=-1),)),
        {name: b"a"},
        "below zero",
    )
    yield (
        "beyond numbers",
        manifest_of(contents=(Content(digest=digest_bytes(b"a"), size=10**4000),)),
        {name: b"a"},
        "trusted with",
    )
    yield "two lines", manifest_of(b"a", commit="a\nb"), {name: b"a"}, "not one line"
    yield (
        "terminal",
        manifest_of(b"a", requires=Requirements(libraries=("\x1b[2J",))),
        {name: b"a"},
        "not one line",
    )
    yield "not named", manifest_of(b"a", blobs=()), {name: b"a"}, "nothing names"
    yield "not there", manifest_of(b"a", blobs=(digest_bytes(b"b"),)), {name: b"a"}, "not in it"
    yield (
        "record out",
        manifest_of(b"a", records=(PackedRecord(kind="../..", key="x", data=digest_bytes(b"a")),)),
        {name: b"a"},
        "record's name",
    )
    yield "newer", b'{"version":2,"else":1}', {}, "bundle format: 1 is what .* found 2.* newer"
    yield "no manifest", b"[]", {}, "manifest is not right"
    yield "no text", b'{"version":1,"kind":"\xff"}', {}, "manifest is not right"
    yield "tree is none", manifest_of(b"a", trees=(digest_bytes(b"a"),)), {name: b"a"}, "listing"


HOSTILE = list(hostile_members())


@pytest.mark.parametrize(
    ("manifest", "members", "line"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
def test_hostile_bundle_is_refused(
    tmp_path: Path, manifest: BundleManifest | bytes, members: dict[str, bytes], line: str
) -> None:
    """Names that lead out, lies about sizes and digests, duplicates: one line, nothing written."""
    forge(tmp_path / "y.tyb", manifest, members)

    refuse(tmp_path / "y.tyb", tmp_path / "objects")

    with pytest.raises(BundleError, match=line):
        open_bundle(tmp_path / "y.tyb", ObjectStore(tmp_path / "n" / "o"), host=BARE)
    assert not (tmp_path / "n").exists()


FILE = TreeFile(digest=digest_bytes(b"a"), size=1)


@pytest.mark.parametrize(
    "entries",
    [
        {"../out": FILE},
        {"/out": FILE},
        {"a": TreeLink(target="/etc"), "b": FILE},
        {"a": TreeLink(target="../.."), "b": FILE},
        {"a": TreeLink(target="b"), "a/x": FILE},
        {"a": FILE, "a/b": FILE},
        {"a": TreeFile(digest=digest_bytes(b"a"), size=2)},
        {"a": TreeFile(digest=digest_bytes(b"z"), size=1), "b": FILE},
        {"a": TreeFolder(), "a/b": FILE},
    ],
)
def test_hostile_tree_is_refused(tmp_path: Path, entries: dict[str, Entry]) -> None:
    """No tree of a bundle reaches out of its directory, by a name or through a link."""
    listing = encode_listing(Listing(entries=entries))
    tree = digest_bytes(listing)
    manifest = manifest_of(b"a", listing, blobs=(), trees=(tree,))
    forge(tmp_path / "y.tyb", manifest, members_of(b"a", listing))

    refuse(tmp_path / "y.tyb", tmp_path / "objects")


def test_tree_that_multiplies_its_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small content that a listing names without end is counted as often as it is named."""
    data = b"a" * 1_000_000
    file = TreeFile(digest=digest_bytes(data), size=len(data))
    listing = encode_listing(Listing(entries={f"{n:07}": file for n in range(50)}))
    manifest = manifest_of(data, listing, blobs=(), trees=(digest_bytes(listing),))
    forge(tmp_path / "y.tyb", manifest, members_of(data, listing))
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=(64 << 20) + 10_000_000)
    )
    expected = "needs 49000000 bytes, which this disk does not have"

    assert expected in refuse(tmp_path / "y.tyb", tmp_path / "objects")


def test_too_many_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a limit to what a manifest and its trees may list."""
    listing = encode_listing(Listing(entries={"a": FILE, "b": FILE}))
    manifest = manifest_of(b"a", listing, blobs=(), trees=(digest_bytes(listing),))
    forge(tmp_path / "y.tyb", manifest, members_of(b"a", listing))
    monkeypatch.setattr(bundle_file, "MOST_ENTRIES", 1)
    assert "more than 1 entries" in refuse(tmp_path / "y.tyb", tmp_path / "objects")

    monkeypatch.setattr(bundle_file, "MOST_CONTENTS", 1)
    assert "more than 1 entries" in refuse(tmp_path / "y.tyb", tmp_path / "objects")


def test_manifest_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size stands in front of it."""
    forge(tmp_path / "y.tyb", b"[" + b" " * 5000 + b"]", {})
    monkeypatch.setattr("tileyard.artifacts.bundle_file.BIGGEST_MANIFEST", 5000)
    expected = "manifest of 5002 bytes is too large"

    assert expected in refuse(tmp_path / "y.tyb", tmp_path / "objects")


@pytest.mark.slow
def test_bomb_is_read_no_further_than_it_declares(tmp_path: Path) -> None:
    """Gigabytes of zeros behind an honest beginning are refused when the first of them is seen."""
    body = io.BytesIO()
    writer = BundleWriter(body)
    head = canonical_json(manifest_of(b"a")).encode()
    writer.add(MANIFEST, len(head), (head,))
    for _ in range(256):
        writer._put(bytes(1 << 20))
    writer.finish()
    (tmp_path / "y.tyb").write_bytes(body.getvalue())
    expected = "is not at the place"

    assert expected in refuse(tmp_path / "y.tyb", tmp_path / "objects")
    with (tmp_path / "y.tyb").open("rb") as file:
        reader = BundleReader(file, "y.tyb")
        reader.read_manifest()
        assert len(reader._pending) < 140_000_000
        with pytest.raises(BundleError):
            list(reader.read(member_name(digest_bytes(b"a")), 1))


def test_frames_after_the_end_are_refused(bundle: Path, tmp_path: Path) -> None:
    """Not even what decompressors skip may follow, signed or not."""
    body = bundle.read_bytes()[:-40]
    more: list[Callable[[], bytes]] = [
        lambda: b"\x50\x2a\x4d\x18\x01\0\0\0x",
        lambda: zstandard.compress(b""),
        lambda: b"\0",
    ]
    for one in more:
        (tmp_path / "y.tyb").write_bytes(sign(body + one()))
        assert "contains more" in refuse(tmp_path / "y.tyb", tmp_path / "objects")


@pytest.mark.parametrize("size", [1, 512, 10_240])
def test_archive_that_goes_on_is_refused(tmp_path: Path, size: int) -> None:
    """Not even zeros may follow the end of the archive, though tar would not mind."""
    body = io.BytesIO()
    writer = BundleWriter(body)
    head = canonical_json(manifest_of()).encode()
    writer.add(MANIFEST, len(head), (head,))
    writer._put(bytes(1024 + size))
    writer._write(writer._compressor.flush())
    (tmp_path / "y.tyb").write_bytes(sign(body.getvalue()))
    expected = "contains more"

    assert expected in refuse(tmp_path / "y.tyb", tmp_path / "objects")


def test_padding_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    """Nothing hides between the members."""
    body = io.BytesIO()
    writer = BundleWriter(body)
    head = canonical_json(manifest_of()).encode()
    writer._put(member_header(MANIFEST, len(head)) + head + b"x" * (-len(head) % 512))
    writer.finish()
    (tmp_path / "y.tyb").write_bytes(body.getvalue())
    expected = "padding"

    assert expected in refuse(tmp_path / "y.tyb", tmp_path / "objects")


def test_size_is_measured_by_that_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What declares a thousand times its own size is refused, beyond what is small anyway."""
    monkeypatch.setattr(bundle_file, "FREE_BYTES", 1000)
    data = b"a" * 3_000_000
    forge(tmp_path / "y.tyb", manifest_of(data), members_of(data))
    expected = "declares 3000000 bytes"

    assert expected in refuse(tmp_path / "y.tyb", tmp_path / "objects")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder, and a name of nothing, are one line."""
    os.mkfifo(tmp_path / "pipe")
    for name in (".", "nothing.tyb", "pipe"):
        with pytest.raises(TileyardError) as caught:
            read_manifest(tmp_path / name)
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(shutil.which("zstd") is None, reason="needs the zstd program")
def test_usual_tools_can_look_inside(bundle: Path) -> None:
    """tar and zstd list a bundle, manifest first."""
    listed = subprocess.run(
        ["tar", "--zstd", "-tf", bundle], capture_output=True, text=True, check=True
    )
    expected = MANIFEST

    assert listed.stdout.splitlines()[0] == expected


def test_an_empty_folder_that_others_remove_is_made_again(tmp_path: Path) -> None:
    """A process that opened a bundle removes its own empty folders, while others make theirs in them."""
    ended = threading.Event()

    def remove() -> None:
        while not ended.wait(0.0002):
            with contextlib.suppress(OSError):
                (tmp_path / "tmp").rmdir()

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for _ in range(1000):
            with private_folder(tmp_path) as folder:
                assert folder.is_dir()
    finally:
        ended.set()
        remover.join()


def test_a_store_into_which_something_was_published_keeps_its_tmp(tmp_path: Path) -> None:
    """Others may be about to use it. A store that has nothing else is removed with it."""
    for name in ("full", "empty"):
        root = tmp_path / name
        with private_folder(root):
            if name == "full":
                (root / "sha").mkdir()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "sha", "tmp"]
