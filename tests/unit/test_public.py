"""The public names are a list that changes only on purpose."""

import tileyard


def test_public_names() -> None:
    """``tileyard.__all__`` is what this copy says, and each name is there."""
    expected = ["Study", "TileyardError", "compile", "kernel", "load", "tune"]
    assert tileyard.__all__ == expected
    assert all(hasattr(tileyard, name) for name in expected)
