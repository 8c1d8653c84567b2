"""What a home remembers of a suite: failures until they are mended, and what starting costs."""

from pathlib import Path

import pytest

from tileyard.base.errors import HomeError
from tileyard.base.model import Outcome
from tileyard.verbs.test.plan.memory import FOLDER, Memory, read_memory, update_memory
from tileyard.verbs.test.plan.pieces import Costs
from tileyard.verbs.test.result.achieved import Startup
from tileyard.verbs.test.result.result import CaseVerdict

SUITE = "/somewhere/suite.toml"
STARTED = Startup(startup_s=0.5, launch_s=0.25, lead_s=2.0)


def same(known: Memory) -> Memory:
    """A run that shows nothing else."""
    return known


def verdict(case: str, outcome: Outcome) -> CaseVerdict:
    """How a case ended."""
    return CaseVerdict(case=case, testcase="t", family="t", outcome=outcome)


def test_nothing_is_known_of_a_suite_that_never_ran(tmp_path: Path) -> None:
    """Another suite of the same home has a memory of its own."""
    update_memory(tmp_path, "/another", [verdict("t/a", Outcome.CRASHED)], STARTED, same)
    assert read_memory(tmp_path, SUITE) == Memory()


def test_what_a_run_left_out_stays_as_it_was(tmp_path: Path) -> None:
    """A pass mends, a skip too; a fault and a case that was not run are to be run again."""
    first = {
        "t/a": Outcome.CRASHED,
        "t/b": Outcome.MISMATCH,
        "t/c": Outcome.PASSED,
        "t/d": Outcome.INFRA_ERROR,
        "t/e": Outcome.NOT_RUN,
    }
    update_memory(tmp_path, SUITE, [verdict(*one) for one in first.items()], STARTED, same)
    second = {"t/a": Outcome.PASSED, "t/c": Outcome.TIMEOUT, "t/d": Outcome.SKIPPED}
    update_memory(tmp_path, SUITE, [verdict(*one) for one in second.items()], None, same)
    expected = Memory(failing=("t/b", "t/e", "t/c"), startup_s=0.5, launch_s=0.25, lead_s=2.0)
    assert read_memory(tmp_path, SUITE) == expected


def test_the_latest_costs_of_starting_count(tmp_path: Path) -> None:
    """Where a run has shown none, or not one of them, those that were known stay."""
    update_memory(tmp_path, SUITE, [], STARTED, same)
    update_memory(tmp_path, SUITE, [], None, same)
    kept = read_memory(tmp_path, SUITE).costs(2, has_devices=True)
    update_memory(tmp_path, SUITE, [], Startup(startup_s=0.1, launch_s=None, lead_s=1.0), same)
    later = read_memory(tmp_path, SUITE).costs(0, has_devices=True)
    assert kept == Costs(startup_s=0.5, launch_s=0.25, lead_s=2.0, lanes=2)
    assert later == Costs(startup_s=0.1, launch_s=0.25, lead_s=1.0)


@pytest.mark.parametrize("torn", [b"", b'{"failing": ["t/a"', b'{"failing": 3}', b"\xff\x00"])
def test_a_torn_file_is_as_good_as_none(tmp_path: Path, torn: bytes) -> None:
    """It is written anew by the next run."""
    update_memory(tmp_path, SUITE, [verdict("t/a", Outcome.CRASHED)], None, same)
    (path,) = (tmp_path / FOLDER).iterdir()
    path.write_bytes(torn)
    seen = read_memory(tmp_path, SUITE)
    update_memory(tmp_path, SUITE, [verdict("t/b", Outcome.CRASHED)], None, same)
    assert seen == Memory()
    assert read_memory(tmp_path, SUITE).failing == ("t/b",)
    assert list((tmp_path / FOLDER).iterdir()) == [path]


def test_a_home_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """The message says which file or folder, and why."""
    (tmp_path / "file").touch()
    with pytest.raises(HomeError, match=rf"cannot read {tmp_path}/file/{FOLDER}/.*: Not a dir"):
        read_memory(tmp_path / "file", SUITE)
    (tmp_path / FOLDER).symlink_to(tmp_path / "gone" / "away")
    with pytest.raises(HomeError, match=rf"cannot write to {tmp_path}/{FOLDER}: "):
        update_memory(tmp_path, SUITE, [], None, same)
