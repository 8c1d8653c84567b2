"""A team's site: what its first page names, what a further run rewrites, and what is refused."""

import fcntl
import itertools
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from html import unescape
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest
from ruamel.yaml import YAML
from tests.unit.verbs.regress.plan.recorded_runs import BASE_NS, REVISIONS, record_runs
from tests.unit.verbs.site.histories import (
    PLANTED,
    RUNS,
    SLOWED,
    STEADY,
    make_repository,
    record_history,
    record_study,
    record_suite,
)

from tileyard.base.events import is_final
from tileyard.base.model import Measurement, Outcome, TensorSpec, Trial
from tileyard.cli.main import main
from tileyard.store.base import TrialQuery
from tileyard.store.choices import Choice, add_choices
from tileyard.store.events import EventLog
from tileyard.store.results import keep_result
from tileyard.store.trials import TrialStore
from tileyard.testing.stores import make_trial
from tileyard.verbs.regress.plan.bisection import Commit
from tileyard.verbs.regress.plan.causes import MOST_COMMITS
from tileyard.verbs.regress.plan.revisions import Project
from tileyard.verbs.site.plan import folder
from tileyard.verbs.site.result import Subject
from tileyard.verbs.tune.result import StudyResult

ROOT = Path(__file__).parents[4]
HOSTILE = "<script>alert(1)</script>/../../escape\u202e\"'&\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, tuple[str, ...]]:
    """A repository of 40 commits, a home with 60 runs, and the commits."""
    folder = tmp_path_factory.mktemp("history")
    commits = make_repository(folder / "repository")
    record_history(folder / "home", commits)
    return folder / "repository", folder / "home", commits


@pytest.fixture
def in_repository(
    made: tuple[Path, Path, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, tuple[str, ...]]:
    """The home, and the commits, in whose repository commands run."""
    repository, home, commits = made
    monkeypatch.chdir(repository)
    return home, commits


def make_site(folder: Path, *homes: Path, more: Sequence[str] = ()) -> None:
    """Write or update a site from these homes."""
    named = [word for home in homes for word in ("--home", str(home))]
    assert main(["site", str(folder), *named, *more]) == 0


def read_files(folder: Path) -> dict[str, bytes]:
    """All files of a site."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def make_case(run: str, **fields: Any) -> Trial:  # noqa: ANN401 - of any type
    """A trial of a suite's case, the only one of its run."""
    usual = {"kernel": "", "arguments": {}, "config": {}, "target": "command", "measurement": None}
    return make_trial(f"{run}.1", **{**usual, "run": run, "run_s": 1.0, **fields})


def make_result(day: int) -> StudyResult:
    """What a run kept of its study, whose reference took 2 ms."""
    reference = Measurement(
        median_ns=2e6, low_ns=1.99e6, high_ns=2.01e6, confidence=0.95, samples_ns=(2e6,)
    )
    return StudyResult(
        run=f"tune{day}",
        kernel="gemm",
        arguments={"M": 64},
        target="cpu",
        device="cpu:0",
        silicon="a CPU",
        flops=1.2e9,
        space=3,
        trials=(),
        best=None,
        reference=reference,
    )


def make_choice(tensors: tuple[TensorSpec, ...]) -> Choice:
    """What the studies decided, whose kernel has these tensors."""
    return Choice(
        kernel="gemm",
        arguments={"M": 64},
        target="cpu",
        silicon="a CPU",
        config={},
        tensors=tensors,
        latency_ns=1.2e6,
    )


def text_of(page: str | bytes) -> str:
    """What a reader sees of a page."""
    text = page.decode() if isinstance(page, bytes) else page
    body = re.sub(r"<(style|script|title)\b.*?</\1>", "", text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def rows_of(folder: Path) -> list[str]:
    """The rows of the table of all cases, as text."""
    page = (folder / "index.html").read_text()
    table = page[page.index('id="cases"') :]
    rows = table[table.index("<tbody>") : table.index("</tbody>")].split("</tr>")[:-1]
    return [text_of(row) for row in rows]


def page_of(
    folder: Path, case: str, kind: str = "comparison", target: str = "cpu", suite: str = ""
) -> str:
    """The page of a case, as text."""
    subject = Subject(kind=kind, case=case, target=target, suite=suite)  # type: ignore[arg-type]
    return text_of((folder / "cases" / f"{subject.file}.html").read_text())


def test_a_planted_change_is_on_the_first_page_with_its_commit(
    in_repository: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    """Of 60 runs over 40 commits: the case is first, and no other one has changed; its page leads there."""
    home, commits = in_repository
    make_site(tmp_path, home, more=["--release", "v1"])
    page = (tmp_path / "index.html").read_text()
    answer = text_of(page[page.index('class="answer"') + 15 : page.index("</header>")])
    assert f"1 of 6 cases is slower: {SLOWED} on cpu:0, +6." in answer
    assert f"since commit {commits[PLANTED][:10]}: Softmax rounds once." in answer
    causes = text_of(page[page.index('id="changes"') : page.index('id="all"')])
    assert causes.count("▲") + causes.count("slower") == 1
    assert f"{commits[PLANTED][:10]} Softmax rounds once" in causes
    first, *others = rows_of(tmp_path)
    assert first.startswith(SLOWED)
    assert f"at {commits[PLANTED][:10]}" in first
    assert len(others) == len(STEADY)
    assert all(" at " not in row for row in others)
    shown = page_of(tmp_path, SLOWED)
    assert f"with commit {commits[PLANTED][:10]}: Softmax rounds once." in shown
    assert "60 runs, the newest first" in shown
    assert all(commit[:10] in shown for commit in commits[:-1])


def test_only_certain_changes_have_a_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A last run that took another time is none yet."""
    monkeypatch.chdir(tmp_path)
    record_runs(tmp_path / "home", [BASE_NS] * 9 + [0.93 * BASE_NS], case=SLOWED)
    make_site(tmp_path / "site", tmp_path / "home")
    page = (tmp_path / "site" / "index.html").read_text()
    (before,) = re.findall(r'<td data-name="vs run before"[^>]*>-[67]', page)
    assert "better" not in before


def test_a_further_run_rewrites_what_it_changed_and_no_more(
    in_repository: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    """Run 61 timed two cases, in a home of its own: all else stays, and the result is that of all at once."""
    home, commits = in_repository
    site = tmp_path / "site"
    make_site(site, home)
    before = read_files(site)
    times = {path: (site / path).stat().st_mtime_ns for path in before}
    for case in (SLOWED, STEADY[0]):
        revisions = (*REVISIONS[:RUNS], commits[-1])
        record_runs(tmp_path / "later", [BASE_NS], case=case, revisions=revisions, first=RUNS)
    make_site(site, tmp_path / "later")
    after = read_files(site)
    files = {
        Subject(kind="comparison", case=case, target="cpu").file for case in (SLOWED, STEADY[0])
    }
    expected = {
        f"{folder}/{file}{end}"
        for file in files
        for folder, end in (("cases", ".html"), ("data", ".json"))
    }
    changed = {path for path in after if after[path] != before.get(path)}
    assert changed == expected | {"index.html", "tileyard-site.json"}
    written = {path for path in before if (site / path).stat().st_mtime_ns != times[path]}
    assert written == changed
    make_site(tmp_path / "at once", home, tmp_path / "later")
    assert read_files(tmp_path / "at once") == after
    times = {path: (site / path).stat().st_mtime_ns for path in after}
    make_site(site, home, tmp_path / "later")
    assert {path: (site / path).stat().st_mtime_ns for path in after} == times


@pytest.mark.parametrize("seed", range(6))
def test_a_site_does_not_depend_on_how_it_grew(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generated histories, home by home or all at once, with gaps, equal binaries and failures."""
    monkeypatch.chdir(tmp_path)
    noise = random.Random(seed)
    cases = [f"kernel{number}/config-{number % 2}" for number in range(noise.randint(1, 3))]
    homes = []
    day = 0
    for number in range(noise.randint(2, 4)):
        home = tmp_path / f"home{number}"
        count = noise.randint(1, 4)
        for case in noise.sample(cases, noise.randint(1, len(cases))):
            times = [
                noise.choice((None, BASE_NS, 1.2 * BASE_NS)) if noise.random() < 0.5 else BASE_NS
                for _ in range(count)
            ]
            record_runs(home, times, case=case, first=day)
        with TrialStore.open(home) as store:
            ended = noise.choice((Outcome.PASSED, Outcome.CRASHED))
            failed = make_case(
                f"suite{day}", case="t/a", testcase="t", started_at=1.8e9 + day, outcome=ended
            )
            store.record(failed)
        homes.append(home)
        day += count
    for home in homes:
        make_site(tmp_path / "grown", home)
    make_site(tmp_path / "at once", *homes)
    assert read_files(tmp_path / "grown") == read_files(tmp_path / "at once")


def test_a_run_is_shown_once_it_has_ended(tmp_path: Path) -> None:
    """Before that a study has no winner, and its result, with the time of the reference, is not kept."""
    home, site = tmp_path / "home", tmp_path / "site"
    record_study(home, 0, {16: 1e6, 32: 1.2e6})
    keep_result(home, "tune0", make_result(0))
    make_site(site, home)
    before = read_files(site)
    assert ">history</th>" not in (site / "index.html").read_text()
    record_study(home, 1, {16: 2e6, 32: 2.2e6})
    with EventLog(home, "tune1"):
        make_site(site, home)
    assert read_files(site) == before
    keep_result(home, "tune1", make_result(1))
    make_site(site, home)
    page = page_of(site, "gemm/M=64", "study")
    assert "tune1" in page
    assert page.count("reference: ") == 1
    assert ">history</th>" in (site / "index.html").read_text()


@pytest.mark.parametrize("writes", [1, 3])
def test_a_site_that_was_ended_half_way_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """After the first file or later ones, whether it was new or had earlier runs."""
    record_suite(tmp_path / "home", (1.0, 1.2, 1.1))
    record_suite(tmp_path / "more", (1.0, 1.2, 1.1, 2.0), failing=True)
    make_site(tmp_path / "whole", tmp_path / "home", tmp_path / "more")
    make_site(tmp_path / "old", tmp_path / "home")
    draft = folder.draft_of

    def end_at(path: Path) -> AbstractContextManager[BinaryIO]:
        if next(count) == writes:
            raise KeyboardInterrupt
        return draft(path)

    for name in ("new", "old"):
        count = itertools.count()
        with monkeypatch.context() as changed:
            changed.setattr(folder, "draft_of", end_at)
            main(["site", str(tmp_path / name), "--home", str(tmp_path / "more")])
        make_site(tmp_path / name, tmp_path / "home", tmp_path / "more")
        assert read_files(tmp_path / name) == read_files(tmp_path / "whole")


def test_times_that_cannot_be_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of files that others wrote: such rows cannot be read, and 0 or disorder is no time of a history."""
    draw = random.Random(1)
    odd = (0.0, -1.0, 5e-324, 1e-300, 1e18, 1e300, 1e308)
    with TrialStore.open(tmp_path / "home") as store:
        for number in range(80):
            times = [1000.0, 990.0, 1010.0]
            times[draw.randrange(3)] = draw.choice([1000.0, *odd])
            median, low, high = times
            measured = Measurement(
                median_ns=median, low_ns=low, high_ns=high, confidence=0.95, samples_ns=()
            )
            at = draw.choice([1.8e9 + number, 1.8e9 + number, *odd])
            case, run = f"s/{number % 4}", f"run{number:02}"
            store.record(
                make_case(run, case=case, testcase="s", measurement=measured, started_at=at)
            )
    make_site(tmp_path / "site", tmp_path / "home")
    assert "skipped what cannot be read" in capsys.readouterr().err
    assert not re.search(r"\b(?:nan|inf)\b", read_files(tmp_path / "site")["index.html"].decode())


def test_a_run_that_goes_on_is_read_again(tmp_path: Path) -> None:
    """Trials that are recorded later, as by an import, are added, none twice."""
    home, site = tmp_path / "home", tmp_path / "site"
    record_runs(home, [BASE_NS] * 3)
    with TrialStore.open(home) as store:
        trials = store.list_trials(TrialQuery(limit=0))
    part = tmp_path / "part"
    with TrialStore.open(part) as store:
        store.record_all([one for one in trials if one.run != "run2" or one.batch.endswith("/1")])
    make_site(site, part)
    before = read_files(site)
    make_site(site, home)
    make_site(tmp_path / "at once", home)
    make_site(tmp_path / "of both", part, home)
    assert read_files(site) == read_files(tmp_path / "at once") == read_files(tmp_path / "of both")
    assert read_files(site) != before
    assert page_of(site, "scale/config-1").count("run2") == 2  # once per side


def test_the_newest_commit_says_whether_a_case_fails(
    in_repository: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    """Whatever older commits do when they are run again, or timed again."""
    _, (old, *_, new) = in_repository
    home = tmp_path / "home"
    cases = {  # each with the runs of its commits in the order of time; whether each passed
        "passes": ((new, True), (old, False)),
        "fails": ((old, True), (new, False), (old, True)),
        "fails-again": ((new, True), (new, False)),
        "passes-again": ((new, False), (new, True), (f"{old} with changes", False)),
    }
    with TrialStore.open(home) as store:
        for case, runs in cases.items():
            for number, (revision, is_right) in enumerate(runs):
                made = make_case(
                    f"{case}{number}",
                    case=case,
                    testcase="t",
                    revision=revision,
                    started_at=1.8e9 + number,
                    run_s=1.0 + number,
                    outcome=Outcome.PASSED if is_right else Outcome.CRASHED,
                )
                store.record(made)
    make_site(tmp_path / "site", home)
    rows = {row.split()[0]: row for row in rows_of(tmp_path / "site")}
    assert {name: "crashed" in row for name, row in rows.items()} == {
        name: name.startswith("fails") for name in cases
    }
    assert "passes 1 s" in rows["passes"]
    for name in cases:
        page = page_of(tmp_path / "site", name, "suite", "command")
        assert ("It failed last" in page) == name.startswith("fails")
        assert f"{'2 runs' if name == 'fails' else '1 run'}, the newest first" in page


def test_failures_come_first_and_studies_show_their_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suite's case that crashed last, and a kernel whose best config changed, with its rate."""
    monkeypatch.chdir(tmp_path)
    home, site = tmp_path / "home", tmp_path / "site"
    record_suite(home, (2.0, 2.01, 2.0, 1.0), failing=True)
    for day in range(6):
        record_study(home, day, {16: 2e6, 32: 1.5e6 if day < 3 else 1.2e6, 64: 1.4e6})
        keep_result(home, f"tune{day}", make_result(day))
    tensors = (
        TensorSpec(name="A", dtype="float32", shape=(1000, 100), role="in"),
        TensorSpec(name="C", dtype="float16", shape=(1000, 100), role="inout"),
    )
    add_choices(home, [make_choice(tensors)])
    make_site(site, home, more=["--roof", "a CPU=2000,4", "--roof", "H100=1,1"])
    crashed, tuned = rows_of(site)
    assert crashed.startswith("rows/f16_32x48 ▲"[:14])
    assert "crashed" in crashed
    assert "test nightly" in crashed
    assert tuned.startswith("gemm/M=64 1.2 ms")
    assert "1000.0 50 % " in tuned, "1.2 GFLOP in 1.2 ms, of 2,000 GFLOP/s"
    assert re.search(r"-40\.\d+ % ", tuned), "against the reference"
    assert "block=32" in tuned
    assert "-14." in tuned
    assert "block=64" in page_of(site, "gemm/M=64", "study")
    failed = page_of(site, "rows/f16_32x48", "suite", "command", "nightly")
    assert "It failed last (crashed)." in failed
    assert "signal 11" in failed
    make_site(site, home, more=["--roof", "CPU=2000,1"])
    assert "1000.0 67 % " in rows_of(site)[1], "0.8 MB in 1.2 ms, of 1 GB/s"
    make_site(site, home)
    assert "roofline" not in (site / "index.html").read_text()
    assert main(["site", str(site), "--roof", "CPU=fast"]) == 2


def test_cases_of_one_name_in_two_suites_have_a_history_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a site, also one of an older version, which did not separate them, and in ``history``."""
    monkeypatch.chdir(tmp_path)
    home, site, case = tmp_path / "home", tmp_path / "site", "rows/f16_32x48"
    record_suite(home, (2.0, 2.0, 2.0))
    make_site(site, home)
    joined = Subject(kind="suite", case=case, target="command").file
    for path in (site / "data").iterdir():
        data = json.loads(path.read_text())
        data["group"] = data["subject"].pop("suite")
        path.with_name(f"{joined}.json").write_text(json.dumps(data))
        path.unlink()
    record_suite(home, (9.0, 9.0, 9.0), "weekly", failing=True)
    make_site(site, home)
    shown = [row.partition(" test ")[2] for row in rows_of(site)]
    assert shown == ["weekly command on npu", "nightly command on npu"]
    for suite, runs, has_failed in (("nightly", 3, False), ("weekly", 2, True)):
        page = page_of(site, case, "suite", "command", suite)
        assert f"{case} ({suite})" in page
        assert f"{runs} runs" in page
        assert ("It failed" in page) == has_failed
    assert len(list((site / "cases").iterdir())) == len(list((site / "data").iterdir())) == 2
    monkeypatch.setenv("TILEYARD_HOME", str(home))
    capsys.readouterr()
    assert main(["history", "--tail"]) == 0
    shown = capsys.readouterr().out
    for name in (case, "rows"):
        assert all(f"{name} ({suite})" in shown for suite in ("nightly", "weekly"))
    assert main(["history", case]) == 0
    shown = capsys.readouterr().out
    assert [shown.count(f"{case} ({suite})") for suite in ("nightly", "weekly")] == [3, 3]


def test_a_change_that_base_had_too_is_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit is named for it."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    record_runs(home, [BASE_NS] * 8)
    with TrialStore.open(home) as store:
        trials = store.list_trials(TrialQuery(limit=0))
    slower = tmp_path / "slower"
    with TrialStore.open(slower) as store:
        store.record_all(
            [_slow_down(one) if one.started_at > 1.8e9 + 86400 * 3.5 else one for one in trials]
        )
    make_site(tmp_path / "site", slower)
    page = text_of((tmp_path / "site" / "index.html").read_text())
    assert "because of the machine or its software" in page
    assert "the machine The code is the same, or base changed likewise." in page


def test_a_tie_is_won_by_the_config_that_the_run_decided_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the config in use stays the best; without what the run kept, the fastest is shown."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    record_study(home, 0, {16: 1.0002e6, 32: 1e6})
    make_site(tmp_path / "fastest", home)
    assert "block=32" in rows_of(tmp_path / "fastest")[0]
    best = make_trial("tune0.1", config={"block": 16})
    keep_result(home, "tune0", msgspec.structs.replace(make_result(0), best=best))
    make_site(tmp_path / "decided", home)
    assert "block=16" in rows_of(tmp_path / "decided")[0]


def test_a_config_that_won_a_later_meeting_is_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the default that stays the best though it was no finalist, with its time of that meeting."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    record_study(home, 0, {16: 1.0e6, 32: 1.1e6})
    with TrialStore.open(home) as store:
        finals = [
            one for one in store.list_trials(TrialQuery(run="tune0", limit=0)) if is_final(one)
        ]
        for number, (block, factor) in enumerate(((16, 1.2), (64, 1.1))):
            measured = finals[0].measurement
            assert measured is not None
            samples = tuple(factor * one for one in measured.samples_ns)
            own = msgspec.structs.replace(measured, median_ns=factor * 1e6, samples_ns=samples)
            changed = {"id": f"tune0.{90 + number}", "config": {"block": block}, "measurement": own}
            store.record(msgspec.structs.replace(finals[0], batch="meeting-c0001", **changed))
    best = make_trial("tune0.91", config={"block": 64})
    keep_result(home, "tune0", msgspec.structs.replace(make_result(0), best=best))
    make_site(tmp_path / "site", home)
    assert "block=64" in rows_of(tmp_path / "site")[0]


def test_a_case_that_was_never_timed_has_no_page_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides had the same binary; once another run has timed it, that run says what it took before."""
    monkeypatch.chdir(tmp_path)
    home, site = tmp_path / "home", tmp_path / "site"
    record_runs(home, [None, None])
    record_suite(home, (1.0,))
    make_site(site, home)
    assert len(rows_of(site)) == len(list((site / "cases").iterdir())) == 1
    record_runs(tmp_path / "later", [1.1 * BASE_NS] * 2, first=2)
    make_site(site, tmp_path / "later")
    shown = page_of(site, "scale/config-1")
    assert "it became slower, +" in shown
    assert "run1" in shown


def test_the_worst_change_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among those of a commit, among commits, and in the table, where faster cases follow."""
    monkeypatch.chdir(tmp_path)
    factors = {"little": 1.1, "most": 1.5, "faster": 0.8, "later": 1.3}
    for case, factor in factors.items():
        day = 4 if case == "later" else 2
        times = [BASE_NS] * day + [factor * BASE_NS] * (6 - day)
        record_runs(tmp_path / "home", times, case=f"{case}/config-1")
    make_site(tmp_path / "site", tmp_path / "home")
    names = [row.partition("/")[0] for row in rows_of(tmp_path / "site")]
    assert names == ["most", "later", "little", "faster"]
    page = (tmp_path / "site" / "index.html").read_text()
    causes = text_of(page[page.index('id="changes"') : page.index('id="all"')])
    found = re.findall(r"(most|later|little|faster)/config-1", causes)
    assert found == ["most", "little", "faster", "later"]


def test_a_change_of_many_commits_is_of_one_of_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last ones are listed, and the others counted. Git is asked once for all cases."""
    first, *_, last = make_repository(tmp_path / "repository", MOST_COMMITS + 10)
    monkeypatch.chdir(tmp_path / "repository")
    asked = list[tuple[str, str]]()
    listed = Project.list_commits

    def list_commits(self: Project, good: str, bad: str) -> list[Commit]:
        asked.append((good, bad))
        return listed(self, good, bad)

    monkeypatch.setattr(Project, "list_commits", list_commits)
    there = [*[first] * 5, *[last] * 5]
    for case, revisions in (
        ("a/1", there),
        ("b/1", there),
        ("c/1", there[::-1]),
        ("d/1", there[::-1]),
    ):
        times = [BASE_NS if one == first else 1.1 * BASE_NS for one in revisions]
        record_runs(tmp_path / "home", times, case=case, revisions=revisions)
    make_site(tmp_path / "site", tmp_path / "home")
    page = text_of((tmp_path / "site" / "index.html").read_bytes())
    assert f"One of {MOST_COMMITS + 9} commits, not all of which were timed." in page
    assert "and 9 earlier ones" in page
    assert sorted(set(asked)) == sorted(asked)


def _slow_down(trial: Trial) -> Trial:
    measured = trial.measurement
    if measured is None:
        return trial
    samples = tuple(1.2 * one for one in measured.samples_ns)
    slower = msgspec.structs.replace(measured, samples_ns=samples)
    return msgspec.structs.replace(trial, measurement=slower)


@pytest.mark.parametrize("kind", ["suite", "comparison", "study"])
def test_hostile_names_are_shown_as_text(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of kernels, cases, runs, revisions and messages neither become markup nor leave the folder."""
    monkeypatch.chdir(tmp_path)
    home, site = tmp_path / "home", tmp_path / "site"
    if kind == "study":
        record_study(home, 0, {16: 2e6, 32: 1e6}, kernel=HOSTILE)
    elif kind == "comparison":
        record_runs(home, [BASE_NS] * 2, case=f"{HOSTILE}/config", revisions=(HOSTILE,) * 2)
    else:
        with TrialStore.open(home) as store:
            for number, outcome in enumerate((Outcome.PASSED, Outcome.CRASHED)):
                names = {
                    "testcase": HOSTILE,
                    "suite": HOSTILE,
                    "message": HOSTILE,
                    "target": HOSTILE,
                }
                at = float(number + 1)
                ended = {"case": f"../{HOSTILE}", "started_at": at, "outcome": outcome}
                store.record(make_case(f"{HOSTILE}{number}", **names, **ended))
    make_site(site, home)
    written = {
        path.relative_to(tmp_path).as_posix()
        for path in tmp_path.rglob("*")
        if not path.is_relative_to(home)
    }
    allowed = re.compile(
        r"site(/(index\.html|tileyard-site\.json|(cases|data)(/[0-9a-f]{20}\.(html|json))?))?"
    )
    assert all(allowed.fullmatch(name) for name in written)
    for path in site.rglob("*.html"):
        page = path.read_text()
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page
        assert "\u202e" not in page
        assert page.count("<script") == 2


def test_a_folder_of_others_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says why, and nothing is written there."""
    home = tmp_path / "home"
    record_runs(home, [BASE_NS])

    def refuse(folder: Path, *, home: Path = home) -> str:
        before = read_files(folder)
        assert main(["site", str(folder), "--home", str(home)]) == 2
        assert read_files(folder) == before
        return capsys.readouterr().err

    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("mine")
    assert "is not a site of Tileyard, and not empty" in refuse(other)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "cases").symlink_to(other)
    assert "contains links" in refuse(linked)
    assert "cannot write to" in refuse(other / "index.html" / "below")
    assert "nothing is recorded" in refuse(tmp_path / "new", home=tmp_path / "nowhere")
    site = tmp_path / "site"
    make_site(site, home)
    capsys.readouterr()
    assert "nothing is recorded" in refuse(site, home=tmp_path / "nowhere")
    descriptor = os.open(site, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert "another command is writing the site" in refuse(site)
    finally:
        os.close(descriptor)
    (site / "tileyard-site.json").write_text('{"tileyard": "site 2"}')
    assert "cannot be read" in refuse(site)


def test_a_release_is_compared_without_its_repository(
    in_repository: tuple[Path, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site knows the order of its commits also elsewhere; a release that it does not know is refused."""
    home, commits = in_repository
    site = tmp_path / "site"
    make_site(site, home)
    before = read_files(site)
    monkeypatch.chdir(tmp_path)
    make_site(site, home, more=["--release", commits[10][:12]])
    first = rows_of(site)[0]
    assert re.search(r"at [0-9a-f]{10} \+[4-8]\.\d+ % \+", first)
    after = read_files(site)
    assert {path for path in after if after[path] != before[path]} == {"index.html"}
    assert main(["site", str(site), "--home", str(home), "--release", "v9"]) == 2
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path / "nowhere"))
    make_site(site)
    assert read_files(site) == before


def test_runs_without_a_commit_are_of_the_named_one(
    in_repository: tuple[Path, tuple[str, ...]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """New ones alone, as a job of CI names its own; so a suite's case is slower since a commit, too."""
    _, commits = in_repository
    site = tmp_path / "site"
    for day in range(4):
        with TrialStore.open(tmp_path / "home") as store:
            run_s = 1.0 if day < 2 else 1.2
            at = 1.8e9 + 86400 * day
            store.record(
                make_case(f"suite{day}", case="t/a", testcase="t", run_s=run_s, started_at=at)
            )
        named = commits[day] if day else "main~39"
        make_site(site, tmp_path / "home", more=["--at", named])
    assert f"since commit {commits[2][:10]}: change 2." in capsys.readouterr().out
    assert main(["site", str(site), "--at", "nothing"]) == 2
    assert "is not a git revision" in capsys.readouterr().err


@pytest.mark.slow
def test_the_example_workflow_adds_a_run_to_the_published_branch(
    made: tuple[Path, Path, tuple[str, ...]], tmp_path: Path
) -> None:
    """Its step runs here twice as GitHub would run it, the second time with a run of its own alone."""
    repository, home, commits = made
    workflow = ROOT / "examples" / "workflows" / "histories.yml"
    job = YAML(typ="safe").load(workflow)["jobs"]["measured"]
    (step,) = (one for one in job["steps"] if "pages" in one.get("name", ""))
    origin = tmp_path / "origin.git"
    git = ["git", "-c", "protocol.file.allow=always"]
    subprocess.run([*git, "clone", "-q", "--bare", repository, origin], check=True)
    revisions = (*REVISIONS[:RUNS], commits[-1])
    record_runs(tmp_path / "later", [BASE_NS], case=SLOWED, revisions=revisions, first=RUNS)
    for number, one in enumerate((home, tmp_path / "later")):
        checkout = tmp_path / f"checkout{number}"
        subprocess.run([*git, "clone", "-q", origin, checkout], check=True)
        given = {
            **step["env"],
            "GIT_INDEX_FILE": str(tmp_path / f"index{number}"),
            "GITHUB_SHA": commits[-1],
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RELEASE": "v1",
            "TILEYARD_HOME": str(one),
        }
        argv = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
        subprocess.run(argv, cwd=checkout, env={**os.environ, **given}, check=True)
    published = tmp_path / "published"
    subprocess.run([*git, "clone", "-q", "-b", "gh-pages", origin, published], check=True)
    counted = subprocess.run(
        [*git, "-C", published, "rev-list", "--count", "HEAD"], check=True, capture_output=True
    )
    assert counted.stdout == b"1\n"
    assert "61 runs, the newest first" in page_of(published, SLOWED)
    assert "60 runs, the newest first" in page_of(published, STEADY[0])
    assert "vs v1" in (published / "index.html").read_text()
