"""What a script's tuner answers a study, without any engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileyard.artifacts.arrays import get_array
from tileyard.artifacts.objects import ObjectStore
from tileyard.errors import TileyardError
from tileyard.model import Outcome
from tileyard.workers.protocol import (
    ElaborateConfig,
    ElaboratedConfig,
    ExpandSpace,
    Failed,
    Golden,
    MakeGolden,
    Space,
)

CONFIGS = ({"block": 16, "threads": 32}, {"block": 16, "threads": 64}, {"block": 7}, {"block": 32})


def make_author(folder: Path, size: object = 64) -> Any:  # noqa: ANN401 - TileLang: not while tests are found
    """An author of a kernel that takes any block but 7."""
    import tilelang.language as T  # noqa: N812

    from tileyard.scripts.tuner_author import TunerAuthor

    def elaborate(number: int) -> object:
        block, threads = CONFIGS[number]["block"], CONFIGS[number].get("threads", 32)
        if block == 7:
            raise ValueError("7 is no block")
        n = T.dynamic("n") if size == "open" else size

        @T.prim_func
        def double(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):  # type: ignore[valid-type]  # noqa: ANN202, N803
            with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i] * 2

        return double

    return TunerAuthor(
        objects=ObjectStore(folder),
        kernel="double",
        configs=CONFIGS,
        elaborate=elaborate,
        positions=lambda func: [1],
        supply=lambda number: [np.full(64, number, np.float32)],
        identity="ones",
    )


@pytest.mark.slow
def test_a_study_hears_of_each_work_once(tmp_path: Path) -> None:
    """Configs that differ in threads only are one; one that cannot be elaborated fails as a case of its own."""
    author = make_author(tmp_path)
    expected = [CONFIGS[0], CONFIGS[2], CONFIGS[3]]
    assert author.open() == len(expected)
    space = author.answer(ExpandSpace(kernel="double", arguments={}))
    assert isinstance(space, Space)
    assert list(space.configs) == expected
    asked = [ElaborateConfig(kernel="double", arguments={}, config=dict(c)) for c in expected]
    good, bad, other = (author.answer(request) for request in asked)
    assert isinstance(good, ElaboratedConfig)
    assert isinstance(other, ElaboratedConfig)
    assert isinstance(bad, Failed)
    assert (bad.outcome, "7 is no block" in bad.message) == (Outcome.COMPILE_ERROR, True)
    request = MakeGolden(kernel="double", arguments={}, specs=good.elaborated.specs)
    first, again = author.answer(request), author.answer(request)
    assert isinstance(first, Golden)
    assert isinstance(again, Golden)
    assert (first.key, first.inputs, again.reused) == (again.key, again.inputs, True)
    assert get_array(author.objects, first.inputs[0]).tolist() == [0.0] * 64
    assert author.number(expected[2]) == 3


@pytest.mark.slow
def test_sizes_that_come_with_each_call_are_for_no_study(tmp_path: Path) -> None:
    """Nobody could make inputs for such a kernel ahead."""
    with pytest.raises(TileyardError, match="given with each call"):
        make_author(tmp_path, "open").open()
