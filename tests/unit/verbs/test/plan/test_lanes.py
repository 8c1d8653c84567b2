"""When a run ends whose golden and check steps share lanes."""

from pathlib import Path

import pytest

from tileyard.base.errors import HomeError
from tileyard.base.model import Outcome
from tileyard.verbs.test.plan.lanes import (
    FOLDER,
    Memory,
    Room,
    Timed,
    read_memory,
    simulate_steps,
    update_memory,
)
from tileyard.verbs.test.plan.pieces import Costs
from tileyard.verbs.test.plan.plan import make_plan
from tileyard.verbs.test.result.achieved import Startup
from tileyard.verbs.test.result.result import CaseVerdict, Expected

SUITE = "/somewhere/suite.toml"
STARTED = Startup(startup_s=0.5, launch_s=0.25, lead_s=2.0)


def timed(golden_s: float, run_s: float, check_s: float, golden: int = -1) -> Timed:
    """A case."""
    return Timed(golden_s=golden_s, run_s=run_s, check_s=check_s, golden=golden)


@pytest.mark.parametrize(
    ("cases", "slots", "lanes", "expected"),
    [
        ([timed(0, 3, 1), timed(0, 3, 1)], 2, 2, 4),
        ([timed(0, 3, 1), timed(0, 3, 1)], 2, 1, 5),
        ([timed(0, 3, 1), timed(0, 3, 1)], 1, 1, 7),
        ([timed(5, 1, 0, 0), timed(0, 1, 0, 0)], 2, 2, 6),
        ([timed(2, 4, 0, 0), timed(2, 4, 0, 1)], 2, 1, 8),
        ([timed(0, 1, 0), timed(9, 1, 2, 1)], 2, 1, 12),
    ],
)
def test_runs_wait_for_golden_data_and_checks_for_lanes(
    cases: list[Timed], slots: int, lanes: int, expected: float
) -> None:
    """A shared golden step is waited for by all; checks go before golden steps that have not begun."""
    pieces = [range(case, case + 1) for case in range(len(cases))]
    assert simulate_steps(cases, pieces, Room(slots, lanes, slots + lanes)) == expected


@pytest.mark.parametrize(
    ("cases", "room", "expected"),
    [
        ([timed(0, 3, 1), timed(0, 3, 1)], Room(2, 2, 2), 4),
        ([timed(0, 3, 1), timed(0, 3, 1), timed(0, 3, 1)], Room(2, 2, 2), 7),
        ([timed(0, 3, 1), timed(0, 3, 1)], Room(1, 1, 1), 8),
        ([timed(2, 4, 0, 0), timed(2, 4, 0, 1)], Room(2, 1, 2), 8),
        ([timed(2, 4, 0, 0), timed(2, 4, 0, 1)], Room(1, 1, 1), 12),
    ],
)
def test_slots_and_lanes_that_share_places_wait_for_each_other(
    cases: list[Timed], room: Room, expected: float
) -> None:
    """First come, first served: a check waits for earlier runs, and the next run for the check."""
    pieces = [range(case, case + 1) for case in range(len(cases))]
    assert simulate_steps(cases, pieces, room) == expected


def test_the_cases_of_a_piece_run_one_after_another() -> None:
    """On the slot of their piece."""
    cases = [timed(0, 2, 0), timed(0, 2, 1), timed(0, 1, 0)]
    assert simulate_steps(cases, [range(2), range(2, 3)], Room(2, 1, 3)) == 5


def test_a_case_waits_for_its_own_golden_result_alone() -> None:
    """Wherever the case stands whose step makes it; not for what other cases of its testcase miss."""
    made = Expected(case="t/made", testcase="t", seconds=9.0)
    slow = Expected(case="t/slow", testcase="t", seconds=1.0, golden_s=8.0, golden="g")
    other = Expected(case="u/a", testcase="u", seconds=9.0, golden="g")
    found = [
        make_plan(cases, 3, 0.5, Costs(lanes=1)).predicted_s
        for cases in ((made, slow), (slow, other))
    ]
    assert found == [9.0, 17.0]


def test_a_plan_counts_steps_and_names_them_in_its_gap() -> None:
    """No step of it is a run, so the bound of the pieces stays what it was."""
    expected = [
        Expected(
            case=f"t{n}/a", testcase=f"t{n}", seconds=1.0, golden_s=2.0, check_s=3.0, golden=f"g{n}"
        )
        for n in range(4)
    ]
    plain = make_plan(expected, 4)
    plan = make_plan(expected, 4, costs=Costs(lanes=2))
    assert (plain.predicted_s, plan.bound_s, plan.predicted_s) == (1.0, 1.0, 10.0)
    assert plan.reason == (
        "4 golden steps (8 s) and 4 check steps (12 s) on 2 lanes delay the end by 9 s"
    )


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
