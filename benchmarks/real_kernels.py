"""The kernels of our tests, with arguments that suit a GPU, to compare versions of TileLang with.

tileyard static pip:tilelang==0.1.14 . benchmarks/real_kernels.py
"""

import sys
from importlib import import_module
from pathlib import Path

import tileyard

_TESTS = Path(__file__).parents[1] / "tests"
sys.path += [str(_TESTS / "kernels"), str(_TESTS / "differential")]

from cuda_examples import EXAMPLES, Example


def _declare(example: Example) -> object:
    function = getattr(import_module(example.file), example.kernel)
    return tileyard.kernel(function, shapes={"small": example.arguments})


globals().update(
    {
        title.replace(",", "").replace(" ", "_"): _declare(example)
        for title, example in EXAMPLES.items()
        # Some take numbers at each call, or arguments that no shape can have.
        if not example.numbers and not any(isinstance(v, tuple) for v in example.arguments.values())
    }
)
