"""Listings: which names and links a tree may have, and one canonical form."""

import pytest

from tileyard.artifacts.folders import (
    Entry,
    Listing,
    TreeFile,
    TreeFolder,
    TreeLink,
    check_listing,
    decode_listing,
    encode_listing,
)
from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import Digest

FILE = TreeFile(digest=Digest("0" * 40), size=3)


def link(target: str) -> TreeLink:
    """A link."""
    return TreeLink(target=target)


def test_listing_comes_back_and_order_does_not_matter() -> None:
    """Equal trees have the same bytes, in whatever order their entries were found."""
    one = Listing(entries={"a": FILE, "b/c": link("../a"), "d": TreeFolder()})
    other = Listing(entries=dict(reversed(one.entries.items())))
    expected = encode_listing(one)

    assert encode_listing(other) == expected
    assert decode_listing(expected) == one
    assert one.folders() == ["b", "d"]


@pytest.mark.parametrize(
    "path",
    [
        "/a",
        "a//b",
        "../a",
        "a/..",
        ".",
        "a/./b",
        "",
        "a/",
        "a\x00b",
        "a\udcffb",
        "n" * 256,
        "a/" * 70,
        "/".join(["n" * 200] * 6),
    ],
)
def test_path_that_is_not_plainly_below_the_root_is_refused(path: str) -> None:
    """No name of an entry leads anywhere else, or is more than a file system takes."""
    with pytest.raises(UsageError) as caught:
        check_listing(Listing(entries={path: FILE}))

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "entries",
    [
        {"a": link("/etc/passwd")},
        {"a": link("..")},
        {"a/b": link("../../c")},
        {"a": link("b/../../c")},
        {"a/b/c": link("../.."), "x": link("a/b/c/../out")},
        {"a/b": link(".."), "x/y": link("../a/b/../z")},
        {"a": link("b"), "b": link("a")},
        {"a": link("")},
        {"a": link("b\0c")},
        {"a": link("\udcff")},
        {"a": link("b" * 2000)},
    ],
)
def test_link_that_leaves_the_tree_is_refused(entries: dict[str, Entry]) -> None:
    """Links are followed as the kernel does: through links, and out of the folder they lead to."""
    with pytest.raises(UsageError):
        check_listing(Listing(entries=entries))


@pytest.mark.parametrize(
    "entries",
    [
        {"a": link("b"), "b": FILE},
        {"a/b": link("../c/./d"), "c/d": FILE},
        {"a": link("not/there")},
        {"a/b/c": link("../.."), "x": link("a/b/c/y"), "y": FILE},
        {"a": link(".")},
        {"a": link("b/"), "b": TreeFolder()},
    ],
)
def test_link_that_stays_inside_is_kept(entries: dict[str, Entry]) -> None:
    """Relative links within the tree are fine, what they name being there or not."""
    listing = Listing(entries=entries)

    check_listing(listing)

    assert decode_listing(encode_listing(listing)) == listing


@pytest.mark.parametrize(
    "entries",
    [
        {"a": FILE, "a/b": FILE},
        {"a": link("c"), "a/b": FILE},
        {"a": TreeFolder(), "a/b": FILE},
        {"a": TreeFile(digest=Digest("0" * 40), size=-1)},
    ],
)
def test_entries_that_contradict_each_other_are_refused(entries: dict[str, Entry]) -> None:
    """Nothing lies in what is not a directory, and only what is empty is listed as one."""
    with pytest.raises(UsageError):
        check_listing(Listing(entries=entries))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"entries":{"../a":{"type":"folder"}},"version":1}',
        b'{"entries":{},"version":2}',
        b'{"version":1,"entries":{}}',
        b'{"entries":{"a":{"type":"link","target":"\xff"}},"version":1}',
    ],
)
def test_bytes_that_are_no_listing_are_damage(data: bytes) -> None:
    """Only the one form that a tree's name is made from is read."""
    with pytest.raises(DamagedError) as caught:
        decode_listing(data)

    assert "\n" not in str(caught.value)
