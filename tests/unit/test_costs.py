"""What tests may start and compile."""

import pytest
from tests.costs import FREE, SPARE, Cost, Costs, Excess


def costs_of(budget: dict[str, Cost], **spent: Cost) -> Costs:
    """The costs of a run with one test in each file."""
    costs = Costs(budget, None, has_table=False)
    costs.tests = {f"tests/{file}.py::test_it": cost for file, cost in spent.items()}
    return costs


@pytest.mark.parametrize("what", ["started", "compiled"])
def test_a_tenth_above_a_budget_is_no_excess(what: str) -> None:
    """One more than that is."""
    budget = {"tests/a.py": Cost(**{what: 100})}
    allowed = 110 + SPARE
    assert costs_of(budget, a=Cost(**{what: allowed})).list_excesses() == []
    excess = Excess("tests/a.py", what, allowed + 1, 100)
    assert costs_of(budget, a=Cost(**{what: allowed + 1})).list_excesses() == [excess]
    assert str(excess) == f"tests/a.py: {allowed + 1} {what}, 100 budgeted"


def test_a_budget_that_varies_has_room_for_what_is_measured_again() -> None:
    """A busy machine starts more processes; three times as many are an excess even there."""
    budget = {"tests/a.py": Cost(started=100, varies=True)}
    assert costs_of(budget, a=Cost(started=300)).list_excesses() == []
    (excess,) = costs_of(budget, a=Cost(started=400)).list_excesses()
    assert str(excess) == "tests/a.py: 400 started, 100 budgeted"


def test_a_file_without_a_budget_is_bounded() -> None:
    """Its CPU seconds are not."""
    found = costs_of({}, a=Cost(started=FREE, cpu_s=1e6), b=Cost(compiled=FREE + 1)).list_excesses()
    assert [excess.file for excess in found] == ["tests/b.py"]


def test_costs_of_a_file_are_those_of_its_tests() -> None:
    """And those of a folder are those of its files."""
    costs = costs_of({}, a=Cost(started=1), b=Cost(started=2))
    costs.tests["tests/a.py::test_other"] = Cost(started=4, cpu_s=0.5)
    assert costs.add_up(None)["tests/a.py"] == Cost(started=5, cpu_s=0.5)
    assert costs.add_up(1) == {"tests": Cost(started=7, cpu_s=0.5)}
