"""Cases with the same binary: one is first, the others follow it."""

import pytest

from tileyard.base.model import GoldenKey, Keys, Outcome, Trial
from tileyard.engine.ledger import Alike

SAME = Keys(binary="b", golden=GoldenKey("g"))


def ended(case: str, outcome: Outcome = Outcome.PASSED, keys: Keys = SAME) -> Trial:
    """How a case ended."""
    return Trial(
        id=f"r.{case}",
        run="r",
        case=case,
        batch=case,
        kernel="k",
        arguments={},
        config={},
        target="cpu",
        outcome=outcome,
        keys=keys,
    )


def test_the_second_follows_the_first_and_the_third_ends_at_once() -> None:
    """What the first one ended with is what all of them end with."""
    alike: Alike[str] = Alike()
    first = ended("a")
    expected = [False, True, ["b"], first]
    followed = [alike.follow("a", SAME, "a"), alike.follow("b", SAME, "b")]
    assert [*followed, alike.end("a", first), alike.follow("c", SAME, "c")] == expected


@pytest.mark.parametrize("keys", [Keys(), Keys(binary="b", golden=GoldenKey("other"))])
def test_another_binary_or_other_inputs_follow_nobody(keys: Keys) -> None:
    """Nor does a case of which no binary is known."""
    alike: Alike[str] = Alike()
    alike.end("a", ended("a"))
    expected = False
    assert alike.follow("b", keys, "b") is expected


@pytest.mark.parametrize("outcome", [Outcome.NOT_RUN, Outcome.INFRA_ERROR])
def test_one_of_which_nothing_was_learnt_is_not_followed_any_more(outcome: Outcome) -> None:
    """The next one is run; one that had followed and was dropped changes nothing for the others."""
    alike: Alike[str] = Alike()
    alike.follow("a", SAME, "a")
    alike.follow("b", SAME, "b")
    assert alike.end("b", ended("b", outcome)) == []
    expected = True
    assert alike.follow("c", SAME, "c") is expected
    assert alike.end("a", ended("a", outcome)) == ["b", "c"]
    assert alike.follow("d", SAME, "d") is False
