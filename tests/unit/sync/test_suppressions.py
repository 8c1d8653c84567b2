"""Comments that allow findings: where they apply, and what is wrong with those that say it wrong."""

from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import SourceLine
from tileyard.sync.findings import Finding, FindingKind, Sieved, read_comments, sieve

TEXT = """
def first():
    one = 1  # tileyard: allow(race) the same value
    two = [  # nothing
        1,
    ]  # tileyard: allow(read-before-arrival): is a hint
    # tileyard: allow(Overwritten_in_flight) - nobody reads it

    for k in one:
        two()


def second():
    one = 1  # tileyard: allow(race) another
"""


def sieve_at(tmp_path: Path, kind: FindingKind, access: int, other: int = 0) -> Sieved:
    """What becomes of one finding in TEXT, whose kernel is the first function."""
    path = tmp_path / "kernels.py"
    path.write_text(TEXT, encoding="utf-8")
    at = {line: SourceLine(file=str(path), line=line) for line in range(1, 15)}
    finding = Finding(
        kind=kind, message="m", fix="f", buffer="a", access=at[access], other=at.get(other)
    )
    return sieve([finding], {0: at[3], 1: at[9]})


@pytest.mark.parametrize(
    ("kind", "access", "other", "reason"),
    [
        ("race", 3, 0, "the same value"),
        ("race", 9, 3, "the same value"),
        ("read before arrival", 4, 0, "is a hint"),
        ("overwritten in flight", 9, 0, "nobody reads it"),
    ],
)
def test_a_comment_applies_to_its_statement(
    tmp_path: Path, kind: FindingKind, access: int, other: int, reason: str
) -> None:
    """To all of its lines, for either side, and to the next statement where it is alone."""
    found = sieve_at(tmp_path, kind, access, other)
    assert found.findings == ()
    assert [one.reason for one in found.suppressed] == [reason]
    assert len(found.unused) == 2


@pytest.mark.parametrize(("kind", "access"), [("bytes", 3), ("race", 4), ("race", 10)])
def test_other_kinds_and_lines_are_not_allowed(
    tmp_path: Path, kind: FindingKind, access: int
) -> None:
    """The comments of the kernel that allow nothing are named, and none of another function."""
    found = sieve_at(tmp_path, kind, access)
    assert (len(found.findings), found.suppressed) == (1, ())
    assert [one.comment.line for one in found.unused] == [3, 6, 7]


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("allow(race)", "k.py:1: allow(race) has no reason"),
        ("allow(race) :", "k.py:1: allow(race) has no reason"),
        ("allow race because", "k.py:1: 'allow race because' names no kind of finding"),
        ("allow(rcae) because", "k.py:1: there is no kind of finding 'rcae'"),
    ],
)
def test_a_comment_that_says_it_wrong_is_refused(comment: str, message: str) -> None:
    """With its line, and with what to write."""
    with pytest.raises(UsageError) as caught:
        list(read_comments("k.py", f"x = 1  # tileyard: {comment}\n"))
    assert caught.value.message == message
    assert caught.value.hint


def test_other_comments_are_left_alone() -> None:
    """Also such as begin with our name."""
    assert list(read_comments("k.py", "x = 1  # tileyard: see the docs\n# allow(race)\n")) == []


def test_a_file_that_is_gone_allows_nothing() -> None:
    """As that of a kernel that was typed at a prompt."""
    finding = Finding(kind="race", message="m", fix="f", buffer="a")
    assert sieve([finding], {0: SourceLine(file="<stdin>", line=1)}).findings == (finding,)
