"""What the tests of the store share: a way to make trials."""

from collections.abc import Callable

import pytest

from tileyard.base.model import Trial
from tileyard.testing import stores


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    """A trial with the given id; keys are given as texts, anything else as fields of Trial."""
    return stores.make_trial
