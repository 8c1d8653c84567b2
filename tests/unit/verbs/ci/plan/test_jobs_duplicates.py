"""Which job keeps a check that several run: every check once, for the least that is left to do."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tileyard.base.model import Digest
from tileyard.verbs.ci.plan.jobs import Check, CiJob
from tileyard.verbs.ci.plan.jobs_duplicates import EXACT, Duplicates, find_duplicates


def job(name: str, checks: str | dict[str, float], **options: object) -> CiJob:
    """A job whose checks are called by one letter each, of one second where nothing else is said."""
    seconds = checks if isinstance(checks, dict) else dict.fromkeys(checks, 1.0)
    return CiJob(
        name=name,
        checks=tuple(
            Check(identity=Digest(letter), name=letter, seconds=time)
            for letter, time in seconds.items()
        ),
        **options,
    )


def keepers(found: Duplicates) -> dict[str, str]:
    """The job that keeps each duplicate."""
    return {duplicate.name: duplicate.keeper for duplicate in found.duplicates}


def test_jobs_with_nothing_in_common_have_no_duplicates() -> None:
    """Nothing is dropped and nothing is saved."""
    found = find_duplicates([job("one", "ab"), job("two", "cd")])
    expected = Duplicates(jobs=found.jobs, duplicates=(), seconds=4.0, saves_s=0.0)
    assert found == expected


def test_the_job_that_is_named_first_keeps_what_costs_the_same_everywhere() -> None:
    """Both jobs have work of their own, so neither can go."""
    found = find_duplicates([job("one", "abc"), job("two", "bcd")])
    expected = {"b": "one", "c": "one"}
    assert keepers(found) == expected
    assert [(share.dropped, share.rest) for share in found.jobs] == [((), 3), (("b", "c"), 1)]
    assert (found.saves_s, found.seconds) == (2.0, 6.0)
    assert found.duplicates[0].jobs == ("one", "two")


def test_the_cheaper_job_keeps_a_check() -> None:
    """Where a check takes less counts for more than the order of names."""
    found = find_duplicates([job("one", {"a": 1, "b": 9}), job("two", {"b": 4, "c": 1})])
    expected = {"b": "two"}
    assert keepers(found) == expected
    assert found.saves_s == 9


def test_as_few_jobs_stay_as_can() -> None:
    """A job whose checks all run in another one goes altogether, though it is named first."""
    found = find_duplicates([job("smoke", "ab", setup_s=60), job("full", "abcd", setup_s=60)])
    expected = {"a": "full", "b": "full"}
    assert keepers(found) == expected
    assert found.saves_s == 62
    assert found.jobs[0].rest == 0


def test_one_job_stays_rather_than_two() -> None:
    """Where it costs the same, a later job that runs all of it is better than two earlier ones."""
    found = find_duplicates([job("one", "a"), job("two", "b"), job("both", "ab")])
    expected = {"a": "both", "b": "both"}
    assert keepers(found) == expected
    assert keepers(find_duplicates([job("x", "a"), job("both", "ab"), job("y", "b")])) == expected


def test_set_up_is_weighed_against_dearer_checks() -> None:
    """A loose job stays where it saves more on its checks than its set-up costs."""
    jobs = [job("fast", {"a": 1}, setup_s=5), job("slow", {"a": 3, "b": 1})]
    expected = [{"a": "slow"}, {"a": "fast"}]
    cheap = [CiJob(name="fast", checks=jobs[0].checks, setup_s=1), jobs[1]]
    assert [keepers(find_duplicates(jobs)), keepers(find_duplicates(cheap))] == expected


def test_independent_jobs_are_left_alone() -> None:
    """They drop nothing, and nobody drops anything because of them; what they share is told."""
    jobs = [job("wheel", "abz", is_independent=True), job("sim", "ac"), job("npu", "bcd")]
    found = find_duplicates(jobs)
    expected = {"c": "sim"}
    assert keepers(found) == expected
    assert found.jobs[0].dropped == ()
    assert found.jobs[0].is_independent
    assert found.also_independent == ("a", "b")


def test_an_independent_job_is_named_where_it_runs_a_duplicate_too() -> None:
    """Whoever drops a check learns who else runs it."""
    jobs = [job("one", "ax"), job("two", "ay"), job("wheel", "a", is_independent=True)]
    found = find_duplicates(jobs)
    (duplicate,) = found.duplicates
    expected = (("one", "two"), ("wheel",))
    assert (duplicate.jobs, duplicate.independent) == expected
    assert found.jobs[2].dropped == ()


def test_what_a_job_itself_runs_twice_is_one_check() -> None:
    """Its time counts twice, and it is not a duplicate unless another job runs it."""
    twice = CiJob(name="one", checks=(*job("", "a").checks, *job("", "a").checks))
    expected = 2.0
    assert find_duplicates([twice]).duplicates == ()
    assert find_duplicates([twice, job("two", "ab")]).saves_s == expected


def test_guesses_are_counted() -> None:
    """A saving of which nothing ran yet is told apart."""
    guess = Check(identity=Digest("a"), name="a", seconds=10.0, is_guess=True)
    found = find_duplicates([CiJob(name=name, checks=(guess,)) for name in ("one", "two")])
    expected = 1
    assert found.guessed == expected


COSTS = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 9).map(float))


@given(st.lists(st.tuples(COSTS, st.integers(0, 20)), min_size=1, max_size=5))
def test_no_other_assignment_is_cheaper(drawn: list[tuple[dict[str, float], int]]) -> None:
    """Against all assignments of checks to jobs: every check is kept once, and none leaves less to do."""
    jobs = [job(str(n), checks, setup_s=float(s)) for n, (checks, s) in enumerate(drawn)]
    found = find_duplicates(jobs)
    names = sorted({name for checks, _ in drawn for name in checks})
    choices = [[n for n, (checks, _) in enumerate(drawn) if name in checks] for name in names]
    # A job that runs nothing to begin with is not ours to drop.
    idle_s = sum(setup for checks, setup in drawn if not checks)
    least_s = min(
        idle_s
        + sum(drawn[n][0][name] for name, n in zip(names, chosen, strict=True))
        + sum(drawn[n][1] for n in set(chosen))
        for chosen in product(*choices)
    )
    kept = [name for (checks, _), share in zip(drawn, found.jobs, strict=True) for name in checks]
    dropped = [name for share in found.jobs for name in share.dropped]
    assert len(kept) - len(dropped) == len(names)
    assert found.seconds - found.saves_s == least_s


def test_many_loose_jobs_are_decided_too() -> None:
    """Beyond what can be compared in all its sets, jobs are still left out as long as that saves."""
    many = EXACT + 3
    jobs = [job(f"j{n}", "ab", setup_s=10) for n in range(many)]
    found = find_duplicates(jobs)
    expected = {"a": "j0", "b": "j0"}
    assert keepers(found) == expected
    assert found.saves_s == (many - 1) * 12
