"""Who is asked what: answers are used again exactly as long as nothing they depend on changed."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tileyard.artifacts.digests import digest_if_there
from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Elaborated, GoldenKey, Kernel
from tileyard.engine.authors import Author
from tileyard.engine.proofs import RememberedAuthor
from tileyard.workers.protocol import (
    AnswerT,
    AuthorReply,
    AuthorRequest,
    DescribeKernels,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    Golden,
    Kernels,
    MakeGolden,
    Question,
)

ELABORATE = ElaborateConfig(kernel="k", arguments={"M": 4}, config={"block": 2})
ANSWER = ElaboratedConfig(elaborated=Elaborated(kernel=Kernel(name="k")), log="printed by the user")
MAKE_GOLDEN = MakeGolden(kernel="k", arguments={}, specs=())


@dataclass
class Scripted:
    """An author that notes what it is asked, and answers everything alike."""

    reply: AuthorReply
    footprint: Footprint | None = None
    cores: tuple[int, ...] = (0,)
    heard: list[Any] = field(default_factory=list)

    async def begin(self) -> None:
        """Start."""
        self.heard.append("begin")

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Answer."""
        self.heard.append(request)
        return self.reply if isinstance(self.reply, Failed) else request.check(self.reply)

    async def close(self) -> None:
        """End."""
        self.heard.append("close")


@dataclass
class Place:
    """A kernel file, a home, and authors that come one after the other."""

    file: Path
    objects: ObjectStore
    helper: Path

    def author(self, reply: AuthorReply) -> Scripted:
        """A process that has just imported the file and its helper."""
        files = {f"file {path}": digest_if_there(str(path)) for path in (self.file, self.helper)}
        return Scripted(reply, Footprint(parts=files))

    def remembered(self, author: Scripted, *, recall: bool = True) -> Author:
        """The same, seen by a run of its own."""
        return RememberedAuthor(author, self.file, self.objects, recall=recall)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place where nothing was asked yet."""
    (tmp_path / "home").mkdir()
    for name in ("kernels.py", "helper.py"):
        (tmp_path / name).write_text("x = 1\n")
    objects = ObjectStore(tmp_path / "home" / "objects")
    return Place(tmp_path / "kernels.py", objects, tmp_path / "helper.py")


def ask(
    place: Place, request: AuthorRequest, reply: AuthorReply = ANSWER, *, recall: bool = True
) -> list[AuthorRequest]:
    """What the process of a new run is asked when its engine has this question."""
    author = place.author(reply)
    remembered = place.remembered(author, recall=recall)
    assert asyncio.run(remembered.ask(request, 1.0)) == reply
    return author.heard


def test_an_answer_is_used_again_with_its_log(place: Place) -> None:
    """The second run asks nobody, and gets what the first one got."""
    expected: list[list[AuthorRequest]] = [[ELABORATE], []]
    assert [ask(place, ELABORATE), ask(place, ELABORATE)] == expected


def test_another_question_is_asked(place: Place) -> None:
    """Another argument is another question, and so is a number of another kind."""
    ask(place, ELABORATE)
    for value in (8, 4.0, float("inf"), float("nan"), "4"):
        other = ElaborateConfig(kernel="k", arguments={"M": value}, config={"block": 2})
        expected = [other]
        assert ask(place, other) == expected
        assert ask(place, other) == []


@pytest.mark.parametrize("name", ["kernels.py", "helper.py"])
def test_a_changed_file_is_asked_about_again(place: Place, name: str) -> None:
    """The kernel file and what it imports count by content, to the last comment."""
    ask(place, ELABORATE)
    changed = place.file.with_name(name)
    changed.write_text("# a comment\nx = 1\n")
    expected = [ELABORATE]
    assert ask(place, ELABORATE) == expected
    assert ask(place, ELABORATE) == []


def test_a_content_that_was_there_before_is_known(place: Place) -> None:
    """Undoing an edit finds the answers of before the edit."""
    ask(place, ELABORATE)
    place.file.write_text("x = 2\n")
    ask(place, ELABORATE)
    place.file.write_text("x = 1\n")
    expected: list[AuthorRequest] = []
    assert ask(place, ELABORATE) == expected


def test_another_version_of_a_package_asks_again(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed is part of what is known."""
    (tmp_path / "tilelang-0.1.15.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    ask(place, ELABORATE)
    assert ask(place, ELABORATE) == []
    (tmp_path / "tilelang-0.1.15.dist-info").rename(tmp_path / "tilelang-0.1.16.dist-info")
    expected = [ELABORATE]
    assert ask(place, ELABORATE) == expected


def test_a_setting_of_tilelangs_asks_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that TileLang listens to are part of what is known."""
    ask(place, ELABORATE)
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "something else")
    expected = [ELABORATE]
    assert ask(place, ELABORATE) == expected


def test_failures_are_asked_about_each_time(place: Place) -> None:
    """What failed may have failed for a reason that nobody can see."""
    failed = Failed(message="no")
    expected = [ELABORATE]
    assert ask(place, ELABORATE, failed) == expected
    assert ask(place, ELABORATE, failed) == expected


def test_fresh_asks_everything_and_keeps_it(place: Place) -> None:
    """Without recall the author answers, and what it says now is what counts from then on."""
    ask(place, ELABORATE)
    other = ElaboratedConfig(elaborated=ANSWER.elaborated, log="something else")
    expected = [ELABORATE]
    assert ask(place, ELABORATE, other, recall=False) == expected
    assert ask(place, ELABORATE, other) == []


def test_an_unsettled_or_unknown_footprint_keeps_nothing(place: Place) -> None:
    """An answer is kept only where all that it depends on is known and held still."""
    expected = [ELABORATE]
    foreign, content = Footprint(), digest_if_there(str(place.file))
    unsettled = Footprint(parts={f"file {place.file}": content}, doubts=["it changed"])
    for footprint in (None, foreign, unsettled):
        for _ in range(2):
            author = Scripted(ANSWER, footprint)
            asyncio.run(place.remembered(author).ask(ELABORATE, 1.0))
            assert author.heard == expected


def test_a_golden_without_identity_is_made_in_each_run(place: Place) -> None:
    """Only a golden whose key was known beforehand is used again."""
    blob = place.objects.put_bytes(b"array")
    loose = Golden(key=GoldenKey("key"), inputs=(blob,), outputs=())
    expected = [MAKE_GOLDEN]
    assert ask(place, MAKE_GOLDEN, loose) == expected
    assert ask(place, MAKE_GOLDEN, loose) == expected


def test_a_golden_whose_arrays_are_gone_is_made_again(place: Place) -> None:
    """What is known of a golden result counts only with its arrays."""
    blob = place.objects.put_bytes(b"array")
    golden = Golden(key=GoldenKey("key"), inputs=(blob,), outputs=(), is_identified=True)
    ask(place, MAKE_GOLDEN, golden)
    assert ask(place, MAKE_GOLDEN, golden) == []
    ObjectStore(place.objects.root).path(blob).unlink()
    expected = [MAKE_GOLDEN]
    assert ask(place, MAKE_GOLDEN, golden) == expected


def test_a_damaged_record_is_no_answer(place: Place) -> None:
    """Whatever is wrong with what was written, the author is asked."""
    ask(place, ELABORATE)
    for path in place.objects.root.rglob("records/answer/*/*"):
        path.chmod(0o644)
        path.write_bytes(b"nonsense")
    expected = [ELABORATE]
    assert ask(place, ELABORATE) == expected


def test_nothing_is_written_before_there_is_a_home(place: Place) -> None:
    """A request that is refused leaves no trace; once the home is there, all is kept."""
    home = place.objects.root.parent
    home.rmdir()
    author = place.author(ANSWER)
    remembered = place.remembered(author)
    asyncio.run(remembered.ask(ELABORATE, 1.0))
    expected = False
    assert home.exists() is expected
    home.mkdir()
    asyncio.run(remembered.close())
    assert ask(place, ELABORATE) == []


def test_a_process_is_begun_only_where_it_will_be_asked(place: Place) -> None:
    """Beginning ahead of the first question is for questions that are new."""
    described = Kernels(kernels=())
    author = place.author(described)
    remembered = place.remembered(author)
    asyncio.run(remembered.begin())
    asyncio.run(remembered.ask(DescribeKernels(), 1.0))
    again = place.author(described)
    asyncio.run(place.remembered(again).begin())
    expected = ["begin", DescribeKernels()]
    assert author.heard == expected
    assert again.heard == []
