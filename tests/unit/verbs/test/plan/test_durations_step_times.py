"""What is known of golden and check steps: times by testcase, and which results are there."""

from pathlib import Path

from tileyard.base.model import CommandWork, Step
from tileyard.verbs.test.plan.durations import Goldens, KnownSteps, add_steps, learn_steps
from tileyard.verbs.test.result.result import Expected, SuiteCase

RUN = Step(argv=("x",))


def make_cases(folder: Path) -> list[SuiteCase]:
    """Two cases of one testcase that share a golden step, and one with neither golden nor check step."""
    golden = Step(argv=("gen",), inputs=(f"{folder}/gen.py",))
    shared = CommandWork(run=RUN, golden=golden, check=RUN)
    return [
        SuiteCase(testcase="t", name="a", work=shared),
        SuiteCase(testcase="t", name="b", work=shared),
        SuiteCase(testcase="u", name="a", work=CommandWork(run=RUN)),
    ]


def expect(cases: list[SuiteCase], known: KnownSteps, folder: Path) -> tuple[Expected, ...]:
    """What is expected of each case, of which a run takes a second."""
    plain = [Expected(case=case.id, testcase=case.testcase, seconds=1.0) for case in cases]
    return add_steps(cases, plain, known, Goldens(folder))


def steps_of(cases: list[SuiteCase], known: KnownSteps, folder: Path) -> list[tuple[float, float]]:
    """The golden and check seconds that are expected of each case."""
    return [(one.golden_s, one.check_s) for one in expect(cases, known, folder)]


def test_a_shared_golden_step_counts_once_until_its_result_is_there(tmp_path: Path) -> None:
    """Times are those of the testcase; an edited input makes the step run again."""
    (tmp_path / "gen.py").write_text("first")
    cases = make_cases(tmp_path)
    assert steps_of(cases, KnownSteps(), tmp_path) == [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0)]
    made = [Goldens(tmp_path).identify(case) for case in cases]
    seconds = {("t", "golden"): [4.0], ("t", "check"): [1.0, 3.0]}
    known = learn_steps(KnownSteps(), seconds, made)
    assert known.made == (made[0],)
    assert steps_of(cases, known, tmp_path) == [(0.0, 2.0), (0.0, 2.0), (0.0, 0.0)]
    (tmp_path / "gen.py").write_text("edited")
    assert steps_of(cases, known, tmp_path) == [(4.0, 2.0), (0.0, 2.0), (0.0, 0.0)]


def test_cases_wait_for_the_result_that_they_share_until_it_is_there(tmp_path: Path) -> None:
    """Its identity says which; a case without a golden step waits for none."""
    (tmp_path / "gen.py").write_text("")
    cases = make_cases(tmp_path)
    result = Goldens(tmp_path).identify(cases[0])
    waits = [one.golden for one in expect(cases, KnownSteps(), tmp_path)]
    assert waits == [result, result, ""]
    waits = [one.golden for one in expect(cases, KnownSteps(made=(result,)), tmp_path)]
    assert waits == ["", "", ""]


def test_a_testcase_of_which_nothing_is_known_is_like_the_others(tmp_path: Path) -> None:
    """Their mean says what a step takes."""
    (tmp_path / "gen.py").write_text("")
    known = learn_steps(KnownSteps(), {("x", "check"): [2.0], ("y", "check"): [4.0]}, ())
    assert steps_of(make_cases(tmp_path), known, tmp_path)[0] == (1.0, 3.0)
