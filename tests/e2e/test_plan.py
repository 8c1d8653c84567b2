"""``tileyard plan`` and ``tileyard history`` from the outside: figures, refusals, and nothing is run."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.conftest import ROOT, CommandLine
from tests.e2e.own_process import OwnProcess

from tileyard.base.model import Outcome, Trial
from tileyard.store.trials import TrialStore

LONG_TAIL = str(ROOT / "tests" / "data" / "st_long_tail.csv")
REAL = ("plan", "--durations", LONG_TAIL, "--slots", "64", "--case-time", "1m")
SUITE = """
name = "sleepers"
[[testcase]]
name = "short"
run = { argv = ["touch", "ran"] }
case = [{ name = "a" }, { name = "b" }]
[[testcase]]
name = "long"
run = { argv = ["touch", "ran"] }
case = [{ name = "a", shape = [64] }, { name = "b", shape = [128] }]
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def own(tmp_path: Path) -> OwnProcess:
    """A command line in this process, with a fresh home."""
    return OwnProcess(tmp_path)


def refused(cli: CommandLine, *arguments: str) -> str:
    """The one line with which a command is refused."""
    done = cli.run(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("tileyard: ")
    return line


def record(home: Path, *runs: tuple[str, float, float]) -> None:
    """Record runs of cases: id, when they started, how long they took."""
    with TrialStore.open(home) as store:
        for number, (case, started_at, run_s) in enumerate(runs):
            store.record(
                Trial(
                    id=f"r.{number}",
                    run="r",
                    case=case,
                    batch="b",
                    testcase=case.partition("/")[0],
                    target="command",
                    device="slot:0",
                    outcome=Outcome.PASSED,
                    started_at=started_at,
                    run_s=run_s,
                )
            )


STEPS = """
name = "steps"
run = ["true"]
check = ["sh", "-c", "sleep 0.2"]
golden = { argv = ["sh", "-c", "sleep 0.3; echo x > {out}/x"], inputs = ["gen"], part = "x" }
[[testcase]]
name = "t"
case = [{ name = "a" }, { name = "b" }, { name = "c" }]
"""


def test_a_plan_counts_golden_and_check_steps(cli: CommandLine) -> None:
    """Those still to run, as the gap says; the first prediction is called a guess, with its range."""
    (cli.cwd / "suite.toml").write_text(STEPS)
    (cli.cwd / "gen").write_text("")
    first = cli.run("plan", "suite.toml", "--slots", "3")
    assert "predicted 13 s (a guess, between 1.3 s and 2 min" in " ".join(first.stdout.split())
    reason = cli.run_json("test", "suite.toml", "--slots", "3")["makespan"]["reason"]
    assert "beside the runs 1 golden step took" in reason
    assert "and 3 check steps took" in reason
    second = cli.run("plan", "suite.toml", "--slots", "3")
    text = " ".join(second.stdout.split())
    assert "guess" not in text
    assert "why: " in text
    assert "; 3 check steps (" in text
    assert "golden step" not in text
    (cli.cwd / "gen").write_text("edited")
    third = cli.run("plan", "suite.toml", "--slots", "3")
    assert "; 1 golden step (" in " ".join(third.stdout.split())


def test_the_real_suite_comes_near_its_floor(own: OwnProcess) -> None:
    """64 slots, inner cases of one minute: within 5 % of what no plan could beat; the usual ways not."""
    found = own.run_json(*REAL)
    expected_s = max(60.0, 595.86 * 60 / 64)
    assert found["floor_s"] == pytest.approx(expected_s, rel=1e-4)
    assert found["plan"]["predicted_s"] <= 1.05 * expected_s
    whole_s = 1493.3
    by_name, whole, fixed = (way["predicted_s"] for way in found["instead"])
    assert by_name >= whole
    assert whole == pytest.approx(whole_s)
    assert fixed > 1.05 * expected_s
    assert sum(len(piece["cases"]) for piece in found["plan"]["pieces"]) == found["cases"]
    assert not own.home.exists()


def test_the_same_is_told_to_people(own: OwnProcess) -> None:
    """The plan, the usual ways and the reason for the gap, each on its line."""
    done = own.run(*REAL)
    expected = [
        "635 cases of 71 testcases, 595 min 51 s of work on 64 slots",
        "whole testcases, by name",
        "whole testcases, longest first",
        "pieces of at most 5 min, longest first",
        "lower bound of any split, max(longest case, total/slots): 9 min 18 s",
        "why: pieces end unevenly",
    ]
    assert done.returncode == 0, done.stderr
    assert [text for text in expected if text in done.stdout] == expected


def test_split_can_be_turned_off_or_fixed(own: OwnProcess) -> None:
    """Whole testcases take as long as the longest one."""
    expected_s = {"off": 1493.3, "5m": 600.0}
    found = {split: own.run_json(*REAL, "--split", split) for split in expected_s}
    assert {split: one["plan"]["predicted_s"] for split, one in found.items()} == pytest.approx(
        expected_s
    )


def test_start_up_makes_longer_pieces(own: OwnProcess) -> None:
    """What each process costs is weighed against what splitting gains."""
    cheap = own.run_json(*REAL)["plan"]
    dear = own.run_json(*REAL, "--startup", "30s", "--launch", "500ms")["plan"]
    expected = len(cheap["pieces"])
    assert len(dear["pieces"]) < expected
    assert dear["predicted_s"] > cheap["predicted_s"]
    assert "processes start one after another" in dear["reason"]


def test_shards_and_budgets_narrow_a_plan(own: OwnProcess) -> None:
    """Every case is run by one shard; what a budget leaves out is listed with its reason."""
    parts = [own.run_json(*REAL, "--shard", f"{n}/4") for n in (1, 2, 3, 4)]
    cases = [case for part in parts for piece in part["plan"]["pieces"] for case in piece["cases"]]
    expected = 635
    assert len(cases) == len(set(cases)) == expected
    assert max(parts[0]["shards_s"]) <= 1.05 * sum(parts[0]["shards_s"]) / 4

    short = own.run_json(*REAL, "--budget", "2m")
    assert short["plan"]["predicted_s"] <= 120.0
    assert short["cases"] + len(short["left_out"]) == expected
    assert "were left when its turn came" in short["left_out"][0]["reason"]


def test_a_suite_is_planned_by_what_is_recorded(own: OwnProcess) -> None:
    """Its own history, its families' where a case is new; and no program of it is run."""
    (own.cwd / "suite.toml").write_text(SUITE, encoding="utf-8")
    record(own.home, ("long/a", 1.0, 50.0), ("long/a", 2.0, 52.0), ("short/a", 3.0, 2.0))
    expected = {"history": 2, "family": 2}
    found = own.run_json("plan", "suite.toml", "--slots", "2")
    assert found["sources"] == expected
    first = found["plan"]["pieces"][0]
    assert first["testcase"] == "long"
    assert first["expected_s"] >= 51.0
    assert not list(own.cwd.rglob("ran"))


def test_a_suite_can_be_planned_by_the_times_of_another_tool(own: OwnProcess) -> None:
    """The time of a testcase is shared among its cases, and what is recorded here has no say."""
    record(own.home, ("long/a", 1.0, 999.0))
    (own.cwd / "suite.toml").write_text(SUITE, encoding="utf-8")
    (own.cwd / "times.csv").write_text("testcase,seconds\nlong,100\nshort,4\n", encoding="utf-8")
    found = own.run_json("plan", "suite.toml", "--durations", "times.csv", "--slots", "2")
    expected = (2, 52.0, {"history": 4})
    plan = found["plan"]
    assert (plan["slots"], plan["bound_s"], found["sources"]) == expected

    (own.cwd / "times.csv").write_text("testcase,seconds\nother,100\n", encoding="utf-8")
    line = refused(own, "plan", "suite.toml", "--durations", "times.csv")
    assert "times.csv: has no time for any of the 4 cases" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("plan",), "nothing to plan (name a suite, or a file of times with --durations)"),
        (("plan", "missing.toml"), "there is no suite missing.toml"),
        (("plan", "--durations", "missing.csv"), "cannot read missing.csv"),
        ((*REAL[:3], "--slots", "0"), "greater than or equal to 1"),
        ((*REAL[:3], "--slots", "many"), "'--slots'"),
        ((*REAL, "--split", "5 weeks"), "--split: '5 weeks' is not a duration"),
        ((*REAL, "--split", "0s"), "--split: '0s' holds no case"),
        ((*REAL[:3], "--case-time", "0"), "--case-time: '0' holds no case"),
        ((*REAL, "--startup", "5 parsecs"), "--startup: '5 parsecs' is not a duration"),
        ((*REAL, "--shard", "9/8"), "there is no shard 9 of 8 (1/8 to 8/8 are)"),
        ((*REAL, "--shard", "half"), "'half' is not a shard such as 2/8"),
        ((*REAL, "--shard", "1/9999"), "shard 1/9999 has no case"),
        ((*REAL, "--budget", "1s"), "no case fits into a budget of 1 s"),
        ((*REAL, "--per", "shard"), "--per"),
        ((*REAL, "--select", "trow*"), "--policy, --select, --skip and --class choose of a suite"),
        (("plan", ".", "--case-time", "1m"), "--case-time is for imported times"),
        (("history",), "nothing is recorded in"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    own: OwnProcess, arguments: tuple[str, ...], expected: str
) -> None:
    """In one line, with exit status 2."""
    assert expected in refused(own, *arguments)


def test_bad_histories_name_file_line_and_key(own: OwnProcess) -> None:
    """As in a table that somebody edited."""
    (own.cwd / "times.csv").write_text("testcase,seconds\nlong,soon\n", encoding="utf-8")
    expected = "times.csv:2: seconds: 'soon' is not a number of seconds"
    assert expected in refused(own, "plan", "--durations", "times.csv")


def test_history_tells_of_the_tail_and_of_what_moved(own: OwnProcess) -> None:
    """The longest case, its share, and the median that became another one since a date."""
    day_s = 86400.0
    before = [("sum/a", day * day_s, 10.0 + day / 10) for day in range(4)]
    after = [("sum/a", (200 + day) * day_s, 20.0 + day / 10) for day in range(4)]
    record(own.home, *before, *after, ("scan/a", 5.0, 1.0))
    found = own.run_json("history", "--tail", "--since", "1970-04-11")
    expected = ["sum/a"]
    assert [moved["case"] for moved in found["moved"]] == expected
    assert found["longest"][0]["case"] == "sum/a"
    assert found["longest"][0]["share"] > 0.9

    shown = own.run("history", "--tail", "--since", "1970-04-11")
    assert "longest testcases" in shown.stdout
    assert "1.99" in shown.stdout
    quiet = own.run("history", "--tail")
    assert "nothing moved since" in quiet.stdout
    assert "99999-01-01" in refused(own, "history", "--since", "99999-01-01")
    assert "neither a date" in refused(own, "history", "--since", "soon")
    assert "no case of a suite came to its end" in refused(own, "history", "--target", "cpu")


def test_what_was_measured_here_cuts_shards_elsewhere(own: OwnProcess) -> None:
    """``history --times`` writes what ``plan --shard`` of another machine takes with ``--durations``."""
    record(own.home, ("short/a", 1.0, 1.0), ("short/b", 2.0, 2.0), ("long/a", 3.0, 30.0))
    done = own.run("history", "--times", "times.csv")
    assert done.returncode == 0, done.stderr
    table = (own.cwd / "times.csv").read_text("utf-8")
    expected = 'testcase,case,seconds\n"long","a",30.0\n"short","a",1.0\n"short","b",2.0\n'
    assert table == expected

    (own.cwd / "suite.toml").write_text(SUITE, encoding="utf-8")
    (own.home / "store.db").unlink()
    asked = ("plan", "suite.toml", "--durations", "times.csv", "--shard")
    parts = [own.run_json(*asked, f"{number}/2")["plan"] for number in (1, 2)]
    expected_s = 30.0 + 30.0 + 1.0 + 2.0  # long/b is taken for another long/a
    assert sum(part["total_s"] for part in parts) == pytest.approx(expected_s)


def test_what_cannot_be_exported_is_refused(own: OwnProcess) -> None:
    """Nothing known, nowhere to write to, or another view asked for: one line, and no file."""
    record(own.home, ("short/a", 1.0, 1.0))
    expected = "no case of a suite came to its end"
    assert expected in refused(own, "history", "--times", "t.csv", "--target", "cpu")
    assert "of class npu" in refused(own, "history", "--times", "t.csv", "--class", "npu")
    assert "of class npu" in refused(own, "history", "--class", "npu")
    assert "cannot write none/t.csv" in refused(own, "history", "--times", "none/t.csv")
    assert "--times writes a file" in refused(own, "history", "--times", "t.csv", "--tail")
    assert not (own.cwd / "t.csv").exists()


def test_json_is_one_document(own: OwnProcess) -> None:
    """Nothing else is printed."""
    done: subprocess.CompletedProcess[str] = own.run(*REAL, "--json")
    expected = ""
    assert done.stderr == expected
    assert json.loads(done.stdout)["cases"] > 0
