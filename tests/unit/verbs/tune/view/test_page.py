"""Studies as pages."""

import re
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from tests.unit.show.test_views import result, trial
from tests.unit.verbs.tune.view.test_figure import make_grid
from tests.unit.verbs.tune.view.test_table import TABLE

from tileyard.base.events import RunStarted
from tileyard.base.model import Keys, Outcome, Trial
from tileyard.cli.main import main
from tileyard.pages.charts import Chart
from tileyard.pages.report import RunLog, render_report
from tileyard.show.view import RunView
from tileyard.verbs.tune.result import Control, Final, Incumbent, StudyResult, Tradeoff
from tileyard.verbs.tune.view.page import describe_studies, describe_study, list_configs, sum_up
from tileyard.verbs.tune.view.study import list_lines, say_met
from tileyard.verbs.tune.view.table_page import describe_shapes

LOG = RunLog(home=Path("/home/t"))
Changed = TypeVar("Changed", StudyResult, Trial, Final)


def change(one: Changed, **fields: object) -> Changed:
    """The same study or trial with other fields."""
    return msgspec.structs.replace(one, **fields)


def test_the_answer_is_one_sentence() -> None:
    """The winner, its time, its gain over the default with the interval, and the configs that tie with it."""
    study = make_grid()
    won, other = study.finals[0], study.trials[1].config
    lost = Final(trial="r.1", config=other, ratio=1.25, low=1.2, high=1.3, tied=False)
    better = Incumbent(name="default", config=other, final=lost)
    said = sum_up(change(study, incumbents=(better,)))
    assert re.fullmatch(
        r"a_\$x\$=0 b=0 same=s is among the fastest of 20 configs, \S+ ms a launch; "
        r"1.250 x \[1.200, 1.300\] as fast as the default; \d+ configs? ties? with it.*\.",
        said,
    )
    stays = sum_up(change(study, incumbents=(Incumbent(name="default", config=won.config),)))
    assert stays.startswith("The default, a_$x$=0 b=0 same=s, stays the best of 20 configs")
    problem = Incumbent(name="in use", config=other, problem="it is wrong")
    assert "; the config in use: it is wrong" in sum_up(change(study, incumbents=(problem,)))


def test_configs_between_which_nothing_was_decided_are_not_ranked() -> None:
    """One alone is not the fastest, nor are those that all have one binary; unchecked is not passed."""
    study = make_grid()
    won = next(one for one in study.trials if one.outcome is Outcome.PASSED)
    same = change(won, id="r.9", keys=Keys(binary="b")), change(won, keys=Keys(binary="b"))
    alike = change(study, trials=same, best=same[1], finals=(), incumbents=(), control=None)
    assert re.match(r"2 configs have the same binary, \S+ \S+ a launch", sum_up(alike))
    alone = change(won, outcome=Outcome.UNCHECKED)
    single = change(alike, trials=(alone,), best=alone)
    assert re.search(r" ran, .* a launch; unchecked", sum_up(single))
    assert " passed, " in sum_up(change(single, trials=(won,), best=won))


def test_a_study_without_a_winner_says_why() -> None:
    """None passed, or other work disturbed it."""
    failed = trial(0, Outcome.MISMATCH, 0.0)
    assert sum_up(change(result(), trials=(failed,), best=None, finals=())) == (
        "No config passed: of 1 config 1 mismatch."
    )
    ended = change(make_grid(), reason="interrupted")
    assert sum_up(ended).endswith("; the run was interrupted.")
    assert sum_up(change(ended, best=None, finals=())) == (
        "No best config: of 16 configs that passed none had all further checks; the run was interrupted."
    )
    disturbed = change(make_grid(), disturbed=True, disturbances=("a beats b and loses to it",))
    assert "a beats b and loses to it" in sum_up(disturbed)


def test_the_answer_states_its_doubts() -> None:
    """Configs that may be as fast and did not meet the winner, each binary once, and what was disturbed."""
    study = make_grid()
    met = {one.trial for one in study.finals}
    fast = [one for one in study.trials if one.outcome is Outcome.PASSED and one.id not in met]
    half = "other work disturbed 50 % of the rounds of the finals: they do not count"
    doubted = change(study, unmet=(fast[0].id,), busy=("other work disturbed the screening", half))
    said = sum_up(doubted)
    assert "; 1 config may be as fast and did not meet it; " in said
    assert said.endswith(
        "; other work disturbed the screening and 50 % of the rounds of the finals."
    )
    finals = next(one for one in describe_study(doubted, LOG).sections if one.name == "finals")
    assert "1 config may be as fast and did not meet it: the table of all" in finals.shown.see
    assert "meet it" not in sum_up(study)
    assert "disturbed" not in sum_up(study)


@pytest.mark.parametrize(
    ("fields", "planned", "said"),
    [
        ({"space": 20, "rejected": 0}, 20, ""),
        ({"space": 21, "rejected": 1}, 20, "1 rejected by where"),
        (
            {"space": 57, "reason": "budget", "stopped": "the budget of 9 s was spent"},
            57,
            "7 rejected by where, 30: the budget of",
        ),
        ({"space": 50, "rejected": 0, "reason": "interrupted"}, 50, "30: the run was interrupted"),
        (
            {"space": 50, "rejected": 2},
            20,
            "2 rejected by where, 28: the run was limited to 20 configs",
        ),
        ({"space": 50, "rejected": 0}, 40, "30: the strategy did not choose them"),
    ],
)
def test_the_page_says_why_configs_were_not_tried(
    fields: dict[str, object], planned: int, said: str
) -> None:
    """`where`, a budget, Ctrl-C, --trials, or the strategy."""
    view = RunView(about=RunStarted(title="tune", run="r", cases=planned))
    facts = dict(
        describe_study(change(make_grid(), **fields), RunLog(home=LOG.home, view=view)).facts
    )
    assert facts["not tried"].startswith(said)
    assert bool(facts["not tried"]) == bool(said)


def test_figures_that_say_nothing_are_left_out() -> None:
    """The share of a parameter that explains hardly anything, and a control without an alarm."""
    study = make_grid()
    flat = change(
        study,
        trials=tuple(
            msgspec.structs.replace(one, measurement=study.trials[0].measurement)
            for one in study.trials
        ),
        control=Control(ratio=1.0, low=0.99, high=1.01, false_alarm=False),
    )
    subject = describe_study(flat, LOG)
    effects = next(one for one in subject.sections if one.name == "effects")
    assert "No parameter matters much by itself" in effects.shown.see
    assert not [one.title for one in effects.shown.groups if "%" in one.title]
    assert "control of the finals" not in dict(subject.facts)
    alarm = Control(ratio=1.1, low=1.05, high=1.2, false_alarm=True)
    facts = dict(describe_study(change(study, control=alarm), LOG).facts)
    assert facts["control of the finals"] == (
        "the best config took 1.100 x [1.050, 1.200] its own time, measured as if it were two"
    )


def test_a_page_has_all_parts_of_a_study() -> None:
    """Those that have nothing to show are left out."""
    study = change(make_grid(), busy=("other work disturbed the screening",))
    subject = describe_study(study, LOG)
    assert ("other work", "disturbed the screening") in subject.facts
    names = [one.name for one in subject.sections]
    assert names == ["progress", "finals", "effects", "map", "losses", "configs", "lines"]
    bare = change(result(), trials=(trial(0, Outcome.MISMATCH, 0.0),), best=None, finals=())
    assert [one.name for one in describe_study(bare, LOG).sections] == [
        *("losses", "configs", "lines"),
    ]


def test_the_median_of_two_times_is_between_them() -> None:
    """In the effect of a parameter."""
    times = {0: 1000.0, 1: 3000.0, 2: 4000.0}
    trials = tuple(
        msgspec.structs.replace(trial(number, Outcome.PASSED, time_ns), config={"a": number // 2})
        for number, time_ns in times.items()
    )
    subject = describe_study(change(result(), trials=trials, best=trials[0], finals=()), LOG)
    (chart,) = [one.shown for one in subject.sections if one.name == "effects"]
    assert isinstance(chart, Chart)
    assert [row.after for row in chart.groups[0].rows] == [
        ("1 us", "2 us", "2 / 2"),
        ("4 us", "4 us", "1 / 1"),
    ]


def test_a_parameter_is_shown_with_all_its_digits() -> None:
    """It can be given to ``--config`` as it is."""
    own = msgspec.structs.replace(
        trial(0, Outcome.PASSED, 1234567.89), config={"scale": 0.18033688011112042}
    )
    study = change(result(), trials=(own,), best=own, finals=())
    table = list_configs(study)
    by_name = dict(zip((one.name for one in table.columns), table.rows[0], strict=True))
    assert (by_name["scale"], by_name["latency"]) == (0.18033688011112042, 1234570.0)


def test_configs_that_were_rejected_are_counted_by_reason() -> None:
    """With those that failed, the most frequent reason first."""
    page = render_report([describe_study(change(make_grid(), rejected=7, space=30), LOG)])
    rows = re.findall(r"<td>([^<]*)</td>\s*<td class=\"wide\">([^<]*)</td>", page)
    assert ("rejected untried", "where") in rows
    assert ("mismatch", "why it failed") in rows
    assert "Without a time: 11 of 27 configs, 7 of them for the first reason." in page


def test_the_table_has_every_config() -> None:
    """In the order of their ends, those with one binary at one rank, and finalists with their final times."""
    study = make_grid()
    slower = [
        msgspec.structs.replace(
            one, measurement=msgspec.structs.replace(study.trials[0].measurement, median_ns=2e7 + n)
        )
        for n, one in enumerate(study.finals)
    ]
    study = change(study, finals=tuple(slower))
    table = list_configs(study)
    names = [one.name for one in table.columns]
    place = {name: names.index(name) for name in names}
    assert [row[place["ended"]] for row in table.rows] == list(range(1, 21))
    assert [row[place["trial"]] for row in table.rows] == [one.id for one in study.trials]
    for row, one in zip(table.rows, study.trials, strict=True):
        measured = study.measurement_of(one) if one.measurement is not None else None
        took_ns = None if measured is None else measured.median_ns
        assert row[place["latency"]] == (took_ns and pytest.approx(took_ns, rel=1e-5))
    ranks = sorted({int(row[place["rank"]] or 0) for row in table.rows})
    assert ranks == list(range(1, len(ranks) + 1))
    texts = {table.texts[int(row[place["outcome"]] or 0)] for row in table.rows}
    assert texts == {"passed", "mismatch", "too large (registers)"}


def test_the_page_says_which_times_decided() -> None:
    """The finals did where there were any: they can contradict the chart of the screening."""

    def words(study: StudyResult) -> dict[str, str]:
        return {
            one.name: getattr(one.shown, "see", "") for one in describe_study(study, LOG).sections
        }

    study = make_grid()
    met = len(study.finals)
    assert f"the first {met}: times of the finals, which decided" in words(study)["configs"]
    assert say_met(study, met) == "times of the finals, which decided"  # a table of no more rows
    for name in ("progress", "effects", "map"):
        assert words(study)[name].startswith("Times are of the screening; the finals, which decide")
    assert "finals" not in "".join(
        words(change(study, finals=()))[name] for name in ("configs", "progress")
    )


def test_a_tie_has_its_reason() -> None:
    """The smallest difference that decides, and the ratio of each config; or that rounds were disturbed."""
    study = make_grid()
    passed = [one for one in study.trials if one.outcome is Outcome.PASSED and one != study.best]
    finals = [study.finals[0]]
    for one, (low, *is_tied) in zip(passed, ((1.01, True), (1.4, True), (1.5,)), strict=False):
        compared = change(study.finals[0], trial=one.id, config=one.config, low=low)
        own = {"ratio": low + 0.1, "high": low + 0.2, "measurement": one.measurement}
        finals.append(change(compared, tied=bool(is_tied), **own))
    alarm = Control(ratio=1.01, low=1.005, high=1.02, false_alarm=True)
    study = change(study, finals=tuple(finals), least=0.02, control=alarm)
    subject = describe_study(study, LOG)
    assert dict(subject.facts)["differences that decide nothing"] == "less than 2 %"
    assert "(a false alarm), so differences of less than 2 % decide nothing" in subject.answer
    (chart,) = [one.shown for one in subject.sections if one.name == "finals"]
    assert isinstance(chart, Chart)
    assert "an interval that begins at 1.02 x or below is a tie." in chart.see
    assert [row.after[1:] for row in chart.groups[0].rows] == [
        ("", "best"),
        ("1.110 x [1.010, 1.210]", "tied"),
        ("1.500 x [1.400, 1.600]", "tied: too few undisturbed rounds"),
        ("1.600 x [1.500, 1.700]", "slower"),
    ]
    (said,) = [line.plain for line in list_lines(study, LOG.home) if "tied" in line.plain]
    assert (
        "2 configs are tied with it (an interval that begins at 1.02 x or below is a tie): " in said
    )
    assert said.count("too few undisturbed rounds") == 1


def test_the_winner_is_marked_among_the_times_of_the_screening() -> None:
    """And the default, wherever another config was faster there."""
    study = make_grid()
    timed = [one for one in study.trials if one.outcome is Outcome.PASSED]
    default = Incumbent(name="default", config=timed[-1].config)
    study = change(study, best=timed[2], incumbents=(default,))
    shown = {one.name: one.data for one in describe_study(study, LOG).sections}
    marks = [("winner of the finals", study.trials.index(timed[2]))]
    marks += [("default", study.trials.index(timed[-1]))]
    assert list(shown["progress"].marks) == marks
    stays = change(study, incumbents=(Incumbent(name="default", config=timed[2].config),))
    (both,) = [one.data for one in describe_study(stays, LOG).sections if one.name == "progress"]
    assert list(both.marks) == [("winner of the finals and default", marks[0][1])]
    (found, *_) = shown["map"].maps
    names = [shown["map"].parameters[place] for place in (found.across, found.down)]
    for one, (_, row, column) in zip((timed[2], timed[-1]), found.marks, strict=True):
        assert [found.columns[column], found.rows[row]] == [str(one.config[key]) for key in names]
    levels = [
        row.before[0]
        for one in describe_study(study, LOG).sections
        if one.name == "effects"
        for group in one.shown.groups
        for row in group.rows
        if "best" in row.drawing
    ]
    assert sorted(levels) == sorted(str(timed[2].config[key]) for key in shown["map"].parameters)


def test_what_comes_from_kernels_is_text() -> None:
    """Names, values and messages."""
    bad = "<img src=x onerror=alert(1)>"
    study = make_grid()
    trials = tuple(
        msgspec.structs.replace(one, config={bad: n, "b": bad}, message=bad)
        for n, one in enumerate(study.trials)
    )
    page = render_report(describe_studies(change(study, kernel=bad, trials=trials), LOG))
    assert bad not in page
    assert "&lt;img src=x" in page


def test_each_kind_of_silicon_has_a_part() -> None:
    """With an answer of its own."""
    study = make_grid()
    subjects = describe_studies(change(study, others=(change(study, silicon="B"),)), LOG)
    page = render_report(subjects)
    assert page.count('<p class="answer">') == 2
    assert page.count("is among the fastest of 20 configs") == 4  # above all, and in each part
    assert 'id="s1-configs"' in page


def test_a_replay_has_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    """As it is no run."""
    assert main(["tune", "--replay", "space.jsonl", "--report", "x.html"]) == 2
    assert "--report has no effect with --replay: there is no run" in capsys.readouterr().err


def test_a_study_of_many_shapes_begins_with_its_table() -> None:
    """Each shape with its config and what that costs, what fewer configs would do, and a part for each."""
    subjects = describe_shapes(TABLE, LOG)
    assert [one.title for one in subjects] == [
        *("gemm: a config for each shape", "gemm M=8", "gemm M=9"),
    ]
    assert subjects[0].answer == (
        "2 configs for 1 shape, each within 5 % of its best (the worst: 1.010 x)."
    )
    page = render_report(subjects)
    rows = re.findall(r"<td>([^<]*)</td><td class=\"wide\">([^<]*)</td>", page)
    assert ("decode: M=8", "tile=2") in rows
    assert ("M=9", "no config passed") in rows
    assert "What fewer configs would do" in page


def test_a_pareto_set_is_drawn() -> None:
    """With the amounts of the second measure."""
    study = make_grid()
    measured = study.trials[0].measurement
    assert measured is not None
    member = Tradeoff(trial="r.0", config={"b": 7}, measurement=measured, amount=2048.0)
    subject = describe_study(change(study, second="shared_bytes", pareto=(member,)), LOG)
    (section,) = [one for one in subject.sections if one.name == "pareto"]
    page = render_report([subject])
    assert section.title == "Pareto set of latency and shared_bytes"
    assert '<td class="wide">b=7</td>' in page
    assert ">2 KiB<" in page
