"""What the plugin costs those whose tests compile nothing."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_activating_the_plugin_loads_neither_tilelang_nor_torch() -> None:
    """A run takes TileLang and torch from its tests' own imports, or does without them."""
    script = (
        "import sys, tileyard.pytest_plugin.plugin;"
        "print([name for name in ('tilelang', 'torch') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    expected = "[]"
    assert done.stdout.strip() == expected
