"""The public names are a list that changes only on purpose."""

import tileyard
import tileyard.testing


def test_public_names() -> None:
    """``tileyard.__all__`` is what this copy says, and each name is there."""
    tuner = {"AutoTuner", "autotune", "set_autotune_inputs"}
    verbs = {"check", "compile", "plan", "regress", "test", "tune"}
    results = {"DispatchTable", "Study", "TileyardError"}
    expected = sorted(
        results | {"kernel", "load", "powers_of_two", "tuned", "when"} | tuner | verbs
    )
    assert tileyard.__all__ == expected
    assert all(hasattr(tileyard, name) for name in expected)


def test_public_contracts() -> None:
    """``tileyard.testing.__all__`` is what this copy says, and each name is there."""
    expected = ["StoreContract", "StrategyContract", "TargetContract"]
    assert tileyard.testing.__all__ == expected
    assert all(hasattr(tileyard.testing, name) for name in expected)
