"""Settings come from the environment, once, and go to other processes through it."""

import os
from pathlib import Path

import msgspec
import pytest

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings, find_project_file, read_settings, read_tables


def test_settings_travel_through_the_environment(tmp_path: Path) -> None:
    """Another process that reads what ``environment`` gives has the same value."""
    (tmp_path / "some.toml").touch()
    settings = Settings(
        home=tmp_path / "home",
        lock_dir=tmp_path / "locks",
        cores=tuple(sorted(os.sched_getaffinity(0))),
        cc="clang",
        plugins={"a": "b:C"},
        host_config=tmp_path / "etc",
        project_file=tmp_path / "some.toml",
        golden_threads=3,
    )
    expected = settings
    assert read_settings(settings.environment(), Path("/")) == expected


def test_the_nearest_project_file_counts(tmp_path: Path) -> None:
    """It is looked for upwards of the working directory, unless one is named."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "tileyard.toml").touch()
    (tmp_path / "a" / "tileyard.toml").touch()
    expected = tmp_path / "a" / "tileyard.toml"
    assert find_project_file("", inner) == expected
    assert find_project_file("../tileyard.toml", inner) == inner / "../tileyard.toml"
    with pytest.raises(UsageError, match=r"TILEYARD_CONFIG names x\.toml, which is not a file"):
        find_project_file("x.toml", inner)


def test_a_table_of_pyproject_is_a_project_file(tmp_path: Path) -> None:
    """Beside a ``tileyard.toml``, or without our table, it does not count; a repository ends the search."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    outer = tmp_path / "pyproject.toml"
    outer.write_text("[tool.tileyard]\nslots = 1\n", encoding="utf-8")
    (inner / "pyproject.toml").write_text('[project]\nname = "tileyard"\n', encoding="utf-8")
    assert find_project_file("", inner) == outer
    assert read_tables(outer) == {"slots": 1}
    (tmp_path / "tileyard.toml").touch()
    assert find_project_file("", inner) == tmp_path / "tileyard.toml"
    (tmp_path / "a" / ".git").touch()  # as in a worktree
    assert find_project_file("", inner) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
@pytest.mark.parametrize("name", ["tileyard.toml", "pyproject.toml"])
def test_a_strangers_file_is_not_just_found(tmp_path: Path, name: str) -> None:
    """It names commands that would be run; who trusts it says so."""
    path = tmp_path / name
    path.write_text("[tool.tileyard]\nslots = 1\n", encoding="utf-8")
    os.chown(path, 1001, 1001)
    with pytest.raises(UsageError, match=r"belongs to another user .uid 1001. .*TILEYARD_CONFIG"):
        find_project_file("", tmp_path)
    expected = path
    assert find_project_file(str(path), tmp_path) == expected
    assert find_project_file("/dev/null", tmp_path) == Path("/dev/null")


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5", "²"])
def test_a_number_of_lanes_is_a_whole_number(tmp_path: Path, text: str) -> None:
    """Else the variable is named, and what it may be."""
    with pytest.raises(UsageError, match=r"TILEYARD_GOLDEN_THREADS is .*1 or more"):
        read_settings({"TILEYARD_GOLDEN_THREADS": text}, tmp_path)


@pytest.mark.parametrize(
    ("golden_threads", "lanes", "step_threads"), [(0, 8, 1), (1, 1, 8), (3, 3, 2), (20, 20, 1)]
)
def test_lanes_share_the_cores(golden_threads: int, lanes: int, step_threads: int) -> None:
    """There is one for each core unless a number is given, and each has its share of the cores."""
    folder = Path("/x")
    cores = tuple(range(8))
    settings = Settings(home=folder, lock_dir=folder, cores=cores, golden_threads=golden_threads)
    assert (settings.lanes, settings.step_threads) == (lanes, step_threads)


def test_defaults_need_no_environment(tmp_path: Path) -> None:
    """Home and locks have their places, and no file has to be there."""
    settings = read_settings({}, tmp_path)
    expected = (Path("/run/lock/tileyard"), Path("/etc/tileyard"), "")
    assert (settings.lock_dir, settings.host_config, settings.cc) == expected
    assert msgspec.structs.asdict(settings)["home"] == tmp_path / ".tileyard"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
STRANGER = 65534


@needs_root
def test_a_strangers_project_gives_no_home(tmp_path: Path) -> None:
    """The next one above does, or else the working directory."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "a"):
        (folder / "pyproject.toml").touch()
    os.chown(tmp_path / "a" / "pyproject.toml", STRANGER, STRANGER)
    assert read_settings({}, inner).home == tmp_path / ".tileyard"


@needs_root
def test_a_found_home_stays_a_found_one_in_other_processes(tmp_path: Path) -> None:
    """Each of them checks it when it makes it: a stranger may have been faster since."""
    settings = read_settings({}, tmp_path)
    (tmp_path / ".tileyard").mkdir()
    os.chown(tmp_path / ".tileyard", STRANGER, STRANGER)
    with pytest.raises(UsageError, match=r"belongs to another user .*set TILEYARD_HOME to"):
        settings.make_home()
    with pytest.raises(UsageError, match="belongs to another user"):
        read_settings(settings.environment(), tmp_path)
    named = read_settings({"TILEYARD_HOME": str(tmp_path / ".tileyard")}, tmp_path)
    assert named.make_home() == tmp_path / ".tileyard"
    assert read_settings(named.environment(), tmp_path) == named


@needs_root
def test_no_home_is_made_where_others_could_replace_it(tmp_path: Path) -> None:
    """What only reads settings works there all the same; below a sticky folder it is made."""
    tmp_path.chmod(0o777)
    settings = read_settings({}, tmp_path)
    with pytest.raises(UsageError, match="others may write to"):
        settings.make_home()
    assert not settings.home.exists()
    tmp_path.chmod(0o1777)
    assert settings.make_home().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("others", [(".git", "objects"), ("thesis.tex",)])
def test_a_home_that_holds_other_things_hides_none_from_git(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    """A repository, or a folder of the user's, may have been named as a home."""
    for name in others:
        (tmp_path / name).mkdir()
    settings = read_settings({"TILEYARD_HOME": str(tmp_path)}, tmp_path)
    assert sorted(path.name for path in settings.make_home().iterdir()) == sorted(others)
