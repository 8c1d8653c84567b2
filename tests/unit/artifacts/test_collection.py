"""Collection of garbage: what is not used goes, what is in use stays, whoever dies when."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts import pins
from tileyard.artifacts.collection import Collection, Holding, Keep, choose, collect, survey_home
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.pins import GATE, collection_began, find_oldest_pin, gate, hold
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import DamagedError, HomeError, UsageError
from tileyard.base.model import Digest

DAY_S = 86_400.0
NOTHING = Keep(max_bytes=0)


class Later:
    """A clock that is some days ahead."""

    def __init__(self, days: float) -> None:
        self._days = days

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start."""
        return 0.0

    def wall_s(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self._days * DAY_S


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    """The object store of a home."""
    return ObjectStore(tmp_path / "home" / "objects")


def home_of(objects: ObjectStore) -> Path:
    """The home that a store lies in."""
    return objects.root.parent


def age(path: Path, days: float) -> Path:
    """Let a file have been used days ago."""
    used = time.time() - days * DAY_S
    os.utime(path, (used, used))
    return path


def put_artifact(objects: ObjectStore, name: str, size: int, days: float) -> Digest:
    """A record that names a blob, both last used days ago."""
    blob = objects.put_bytes(name.encode().ljust(size, b"."))
    objects.put_record("build", name, msgspec.json.encode({"files": {"a": blob}}))
    age(objects.path(blob), days)
    age(objects._record("build", name), days)
    return blob


def put_tree(objects: ObjectStore, name: str, days: float) -> Digest:
    """A tree that was last used days ago."""
    folder = home_of(objects) / name
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(name.encode() * 3000)
    tree = Trees(objects).adopt(folder)
    age(objects.path(tree), days)
    return tree


def freed(done: Collection) -> dict[str, int]:
    """How many of each kind went."""
    return {one.what: one.count for one in done.freed}


def test_what_was_not_used_for_long_goes(objects: ObjectStore) -> None:
    """Artifacts and trees older than the days that are asked for go whole, younger ones stay."""
    old, young = put_artifact(objects, "old", 5000, 20), put_artifact(objects, "young", 5000, 5)
    tree, kept = put_tree(objects, "tree", 20), put_tree(objects, "kept", 5)
    expected = {"artifacts": 2, "trees": 1}

    done = collect(home_of(objects), Keep(days=14))

    assert freed(done) == expected
    assert done.freed_bytes >= 5000 + 12_000
    assert [objects.has(one) for one in (old, young, tree, kept)] == [False, True, False, True]
    assert objects.get_record("build", "old") is None
    assert objects.get_record("build", "young") is not None
    assert Trees(objects).path(kept).is_dir()
    assert not list(objects.root.glob(f"trees/??/*{tree}*"))


def test_least_recently_used_goes_until_the_rest_fits(objects: ObjectStore) -> None:
    """The size that may stay is kept to, and no more is removed than it takes."""
    blobs = [put_artifact(objects, f"n{n}", 100_000, 10 - n) for n in range(5)]
    expected = [False, False, True, True, True]

    done = collect(home_of(objects), Keep(max_bytes=330_000))

    assert [objects.has(blob) for blob in blobs] == expected
    assert done.kept_bytes <= 330_000
    assert collect(home_of(objects), Keep(max_bytes=330_000)).freed == ()


def test_use_is_noted_without_access_times(objects: ObjectStore) -> None:
    """Whatever way an object is used, it is younger then, once a day and not each time."""
    blob = put_artifact(objects, "one", 10, 20)
    tree = put_tree(objects, "tree", 20)
    record = objects._record("build", "one")
    uses = [
        (objects._blob(blob), lambda: objects.get_bytes(blob)),
        (objects._blob(blob), lambda: objects.path(blob)),
        (objects._blob(blob), lambda: objects.has(blob)),
        (objects._blob(blob), lambda: objects.put_bytes(b"one".ljust(10, b"."))),
        (record, lambda: objects.get_record("build", "one")),
        (objects._blob(tree), lambda: Trees(objects).path(tree)),
        (objects._blob(tree), lambda: Trees(objects).has(tree)),
    ]
    with gate(objects.root, fcntl.LOCK_SH):
        age(objects.root / GATE, 30)  # when the last collection began
    expected: list[Path] = []

    stale: list[Path] = []
    for path, use in uses:
        age(path, 20)
        use()
        stale += [path] if path.stat().st_mtime < time.time() - DAY_S / 2 else []
        before = age(path, 0.5).stat().st_mtime
        use()
        stale += [path] if path.stat().st_mtime != before else []

    assert stale == expected


def test_use_after_a_collection_began_is_noted_at_once(objects: ObjectStore) -> None:
    """What is used while a collection goes on is younger than it, however lately it was noted."""
    blob = put_artifact(objects, "one", 10, 0.5)
    with gate(objects.root, fcntl.LOCK_EX):
        os.utime(objects.root / GATE)

    objects.has(blob)

    expected = collection_began(objects.root)
    assert objects.path(blob).stat().st_mtime >= expected


def test_object_used_after_the_survey_stays(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was chosen and is used before its turn comes is not removed."""
    blob, other = put_artifact(objects, "one", 10, 20), put_artifact(objects, "two", 10, 20)

    def survey(home: Path, now_s: float) -> list[Holding]:
        found = survey_home(home, now_s)
        objects.path(blob)
        return found

    monkeypatch.setattr("tileyard.artifacts.collection.survey_home", survey)

    done = collect(home_of(objects), NOTHING)

    assert objects.has(blob)
    assert not objects.has(other)
    assert done.in_use_bytes > 0


def test_pin_keeps_what_was_used_since_the_day_before(objects: ObjectStore) -> None:
    """While a run goes on, what it may have found in use stays; older things go all the same."""
    recent = put_artifact(objects, "recent", 10, 0.9)
    old = put_artifact(objects, "old", 10, 3)

    with hold(objects.root):
        done = collect(home_of(objects), NOTHING)

    expected = [True, False]
    assert [objects._blob(blob).is_file() for blob in (recent, old)] == expected
    assert done.pinned_since > 0
    assert done.in_use_bytes > 0
    assert not objects._blob(old).is_file()
    done = collect(home_of(objects), NOTHING)
    assert not objects._blob(recent).is_file()
    assert done.pinned_since == 0


HOLDER = """
import sys, time
from pathlib import Path
from tileyard.artifacts.pins import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_pin_ends_with_its_process(objects: ObjectStore) -> None:
    """A run that is killed protects nothing any more, and its pin is cleared away."""
    objects.put_bytes(b"")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(objects.root)], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    assert find_oldest_pin(objects.root) is not None

    holder.send_signal(signal.SIGKILL)
    holder.communicate()

    assert find_oldest_pin(objects.root) is None
    expected: list[Path] = []
    assert list((objects.root / pins.PINS).iterdir()) == expected


def test_pin_in_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """The home is named, and what is wrong with it."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(HomeError, match="cannot write to"), hold(tmp_path / "file" / "objects"):
        pass


def test_shared_blob_is_as_recent_as_whoever_names_it(objects: ObjectStore) -> None:
    """A blob stays with the youngest of the records that name it."""
    blob = put_artifact(objects, "old", 10, 20)
    objects.put_record("golden", "young", blob.encode())
    age(objects._record("golden", "young"), 2)
    expected = {"artifacts": 1}

    done = collect(home_of(objects), Keep(days=14))

    assert freed(done) == expected
    assert objects.has(blob)


def test_logs_and_leftovers_go(objects: ObjectStore) -> None:
    """Runs' logs go when they are old; what killed processes left goes after a day in any case."""
    home = home_of(objects)
    (home / "logs" / "run" / "deep").mkdir(parents=True)
    (home / "logs" / "run" / "deep" / "case.log").write_text("said")
    objects.put_bytes(b"")
    for place in ("tmp/x", "objects/tmp/y", "objects/damaged/z", "objects/trees/tmp/t"):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).mkdir()
        (home / place / "file").write_bytes(b"1")
    (home / "objects/trees/ab").mkdir(parents=True)
    (home / "objects/trees/ab" / ("ab" * 20)).mkdir()
    (home / "toolchains").mkdir()
    (home / "toolchains" / "gone").symlink_to("nowhere")

    assert collect(home, Keep(days=14)).freed == ()
    done = collect(home, Keep(days=14), clock=Later(2))
    expected = {"leftovers": 6}
    assert freed(done) == expected
    assert (home / "logs" / "run").is_dir()

    done = collect(home, Keep(days=14), clock=Later(15))
    assert freed(done)["logs"] == 1
    assert list((home / "logs").iterdir()) == []


def test_what_came_lately_is_no_leftover(objects: ObjectStore) -> None:
    """What was moved into its place keeps the times of its content, and is new all the same."""
    home = home_of(objects)
    objects.put_bytes(b"")
    (home / "tmp" / "moved").mkdir(parents=True)
    (home / "logs").mkdir()
    for path in (home / "tmp" / "moved" / "file", home / "logs" / "run.log"):
        path.write_bytes(b"x")
        age(path, 50)
    age(home / "tmp" / "moved", 50)
    expected = ()

    assert collect(home, Keep(days=14)).freed == expected
    assert (home / "tmp" / "moved" / "file").is_file()


def test_build_folder_goes_unless_somebody_builds_in_it(objects: ObjectStore) -> None:
    """What a build tool keeps goes when it is old, but not under a build that takes long."""
    objects.put_bytes(b"")
    caches = home_of(objects) / "caches"
    for name in ("free", "taken"):
        (caches / name).mkdir(parents=True)
        (caches / name / "object.o").write_bytes(b"x")
        (caches / f"{name}.lock").touch()
    expected = 1

    with (caches / "taken.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = collect(home_of(objects), Keep(days=14), clock=Later(15))

    assert freed(done)["build folders"] == expected
    assert not (caches / "free").exists()
    assert (caches / "taken" / "object.o").is_file()
    assert done.in_use_bytes > 0


def test_versions_that_nobody_compares_any_more_go(objects: ObjectStore) -> None:
    """With all that is in them, unless a run may use them; what killed processes left goes sooner."""
    objects.put_bytes(b"")
    sides = home_of(objects) / "sides"
    for name in ("1234", "pip-1234", "tmp-x", ".1234.56"):
        (sides / name / "bin").mkdir(parents=True)
        (sides / name / "bin" / "python").write_bytes(b"x")

    assert freed(collect(home_of(objects), Keep(days=14), clock=Later(2))) == {"leftovers": 2}
    with hold(objects.root):
        done = collect(home_of(objects), Keep(days=14), clock=Later(15))
    assert done.in_use_bytes > 0
    assert sorted(path.name for path in sides.iterdir()) == ["1234", "pip-1234"]
    done = collect(home_of(objects), Keep(days=14), clock=Later(15))
    expected = 2
    assert freed(done)["checkouts and environments"] == expected
    assert list(sides.iterdir()) == []


def test_history_is_never_removed(objects: ObjectStore) -> None:
    """Trials and streams of events cannot be made again."""
    home = home_of(objects)
    objects.put_bytes(b"x")
    (home / "runs").mkdir()
    expected = {"store.db", "runs/r.jsonl"}
    for name in expected:
        (home / name).write_bytes(b"x")

    collect(home, NOTHING, clock=Later(400))

    assert all((home / name).is_file() for name in expected)


def test_dry_run_removes_nothing(objects: ObjectStore) -> None:
    """It says the same as the run that follows it."""
    put_artifact(objects, "one", 5000, 20)
    put_tree(objects, "tree", 20)

    dry = collect(home_of(objects), Keep(days=14), dry_run=True)

    assert objects._record("build", "one").is_file()
    wet = collect(home_of(objects), Keep(days=14))
    expected = msgspec.structs.replace(wet, is_dry=True)
    assert dry == expected


def test_only_one_collection_at_a_time(objects: ObjectStore, tmp_path: Path) -> None:
    """A second one says so; a home without objects has nothing to collect."""
    objects.put_bytes(b"")
    with (objects.root / "gc.alone").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        with pytest.raises(UsageError, match="another collection"):
            collect(home_of(objects), NOTHING)
    with pytest.raises(UsageError, match="nothing to collect"):
        collect(tmp_path / "none", NOTHING)
    assert not (tmp_path / "none").exists()


def test_choice_is_by_age_and_size_alone() -> None:
    """Leftovers first, then what is too old, then the oldest until it fits; records before blobs."""

    def holding(name: str, used_at: float, size: int = 10, what: str = "artifacts") -> Holding:
        return Holding(what=what, marker=Path(name), size=size, used_at=used_at)

    now = 100 * DAY_S
    blob, record = holding("o/ab/blob", 5 * DAY_S), holding("o/records/k/ab/r", 5 * DAY_S)
    young, rest = holding("young", 99 * DAY_S), holding("rest", now, what="leftovers")
    expected = [rest, record, blob]

    found = [young, blob, record, rest]
    assert choose(found, Keep(days=14), now) == expected
    assert choose(found, Keep(max_bytes=30), now) == [rest]
    assert choose(found, Keep(max_bytes=20), now) == [rest, record]
    assert choose(found, Keep(max_bytes=0), now) == [rest, record, blob, young]
    assert choose(found, Keep(), now) == [rest]


RUN = """
import contextlib, os, sys
from pathlib import Path
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.pins import hold
from tileyard.artifacts.trees import Trees
objects = ObjectStore(Path(sys.argv[1]))
trees = Trees(objects)
scratch = Path(sys.argv[2])
for turn in range(6):
    with hold(objects.root):
        made = []
        for number in range(8):
            content = f"{number if number % 2 else f'{os.getpid()} {number}'} ".encode()  # shared, \
or one's own
            blob = objects.put_bytes(content * 3000)
            folder = scratch / f"{os.getpid()}.{turn}.{number}"
            folder.mkdir()
            (folder / "file").write_bytes(content * 2000)
            tree = trees.put(folder)
            objects.put_record("build", f"k{number}", f"{blob} {tree}".encode())
            made.append((number, content, blob, tree))
        for number, content, blob, tree in made * 3:
            assert objects.has(blob) and trees.has(tree)
            assert objects.get_bytes(blob) == content * 3000
            assert (trees.path(tree) / "file").read_bytes() == content * 2000
            assert objects.get_record("build", f"k{number}") is not None
    for number, content, blob, tree in made[::2]:  # as if nobody had used one's own for long
        for path in (objects._blob(blob), objects._blob(tree)):
            with contextlib.suppress(FileNotFoundError):  # it was collected already
                os.utime(path, (1, 1))
        while objects._blob(blob).exists():  # until it was collected
            os.sched_yield()
"""


@pytest.mark.slow
def test_collection_beside_runs_removes_nothing_that_they_use(
    objects: ObjectStore, tmp_path: Path
) -> None:
    """Two runs find all that they made or share, while everything that may go is collected all the time."""
    objects.put_bytes(b"")
    (tmp_path / "scratch").mkdir()
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(objects.root), str(tmp_path / "scratch")],
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    gone = 0
    while any(run.poll() is None for run in runs):
        gone += sum(one.count for one in collect(home_of(objects), NOTHING).freed)

    expected = ["", ""]
    assert [run.communicate()[1] for run in runs] == expected
    collect(home_of(objects), NOTHING)
    assert gone > 0
    assert not list(objects.root.glob("[0-9a-f][0-9a-f]/*"))


def test_tree_whose_directory_is_gone_reads_as_absent(objects: ObjectStore) -> None:
    """A collection that was cut short leaves no listing without its tree for long."""
    tree = put_tree(objects, "tree", 0)
    trees = Trees(objects)
    trees.path(tree).rename(home_of(objects) / "elsewhere")

    with pytest.raises(DamagedError, match="missing"):
        trees.path(tree)

    assert not objects.has(tree)


def test_streams_that_are_recorded_elsewhere_go_when_they_are_old(objects: ObjectStore) -> None:
    """Whatever the size; one whose trials are nowhere else stays for ever."""
    home = home_of(objects)
    objects.put_bytes(b"x")
    (home / "runs").mkdir()
    for name, days in (("old", 20), ("alone", 20), ("new", 2)):
        (home / "runs" / f"{name}.jsonl").write_text("told")
        age(home / "runs" / f"{name}.jsonl", days)

    def is_recorded(stream: Path) -> bool:
        return stream.stem != "alone"

    collect(home, NOTHING, is_recorded=is_recorded)
    assert len(list((home / "runs").iterdir())) == 3
    done = collect(home, Keep(days=14), is_recorded=is_recorded)
    assert freed(done) == {"event streams": 1}
    assert {path.stem for path in (home / "runs").iterdir()} == {"alone", "new"}


def test_output_of_a_runner_whose_engine_was_killed_is_a_leftover(objects: ObjectStore) -> None:
    """It goes after a day in any case, and what was said for no case stays as long as other logs."""
    home = home_of(objects)
    objects.put_bytes(b"x")
    (home / "logs").mkdir()
    for name in ("runner-0a1b2c3d.log", "runner.log"):
        (home / "logs" / name).write_text("said")

    assert collect(home, Keep(days=14)).freed == ()
    done = collect(home, Keep(days=14), clock=Later(2))
    assert freed(done) == {"leftovers": 1}
    assert [path.name for path in (home / "logs").iterdir()] == ["runner.log"]
