"""TileLang's tuners as kernels of ours: what they are to tune, and what makes no sense."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tileyard
from tileyard.base.errors import RejectedError, UsageError
from tileyard.frontend.no_device import assume_target

pytestmark = pytest.mark.slow  # TileLang is imported

Make = Callable[..., Any]


def scale(size: object, *, with_factor: bool = False) -> Make:
    """A function of a chain: a kernel that takes any block but 7, and on request a factor per call."""
    import tilelang.language as T  # noqa: N812

    def make(block: object = None, threads: object = None) -> object:
        if block == 7:
            raise ValueError("7 is not a block")
        n = T.dynamic("n") if size == "open" else size
        if with_factor:

            @T.prim_func
            def scaled(  # noqa: ANN202
                A: T.Tensor((n,), "float32"),  # type: ignore[valid-type]  # noqa: N803
                B: T.Tensor((n,), "float32"),  # type: ignore[valid-type]  # noqa: N803
                f: T.float32,  # type: ignore[valid-type]
            ):
                with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
                    for i in T.Parallel(block):
                        B[bx * block + i] = A[bx * block + i] * f

            return scaled

        @T.prim_func
        def doubled(  # noqa: ANN202
            A: T.Tensor((n,), "float32"),  # type: ignore[valid-type]  # noqa: N803
            B: T.Tensor((n,), "float32"),  # type: ignore[valid-type]  # noqa: N803
        ):
            with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i] * 2

        return doubled

    return make


def read(make: Make, configs: object, inputs: object = None, **profile: object) -> Any:  # noqa: ANN401
    """The chain of a tuner of TileLang's with these configs, whose second parameter is returned."""
    from tilelang.autotuner import AutoTuner
    from tilelang.autotuner.param import CompileArgs, ProfileArgs

    from tileyard.frontend.chains import read_chain

    tuner = AutoTuner.from_kernel(make, configs)
    tuner.compile_args = CompileArgs(out_idx=[1], target="auto")
    tuner.profile_args = ProfileArgs(**profile)
    tuner.compile_flags = "-O2 -g"
    with assume_target():
        return read_chain(tuner, inputs)


CONFIGS = [{"block": 16, "threads": 32}, {"block": 32, "threads": None}]


def test_a_chain_is_a_kernel_with_its_surroundings_as_arguments() -> None:
    """Plain values around the function are its arguments; a study's config finds the user's own."""
    chain = read(scale(64), CONFIGS)
    assert chain.found.name == "make"
    assert chain.arguments == {"size": 64, "with_factor": False}
    assert chain.original({"block": 32}) == {"block": 32}
    described = chain.found.describe()
    assert (described.tunable, described.timing, described.tolerance) == (
        ("block", "threads"),
        None,
        None,
    )


def test_configs_may_be_made_by_a_function_or_be_axes() -> None:
    """All forms come to a list."""
    made = read(scale(64), lambda: [{"block": 16, "threads": 32}])
    assert list(made.configs) == [{"block": 16, "threads": 32}]
    axes = read(scale(64), {"block": [16, 32], "threads": [32]})
    assert [config["block"] for config in axes.configs] == [16, 32]


def test_sizes_and_numbers_come_from_the_inputs() -> None:
    """What comes with each call is read off the inputs that the caller names; numbers are no tensors."""
    given = [np.zeros(96, np.float32), 2.5]
    chain = read(scale("open", with_factor=True), CONFIGS, given, supply_prog=lambda _: given)
    assert (chain.arguments["n"], chain.arguments["f"]) == (96, 2.5)
    (only,) = chain.found.recipe.supply([])
    assert only is given[0]


def test_the_rule_of_a_declared_kernel_holds_for_its_chain() -> None:
    """Configs that ``where`` rejects are left out, for a call's sizes too; if none is left, it is named."""

    def fits(block: int, threads: int = 64, size: object = 64, n: int = 96) -> bool:
        return n % block == 0 and block < 64

    declared = tileyard.kernel(scale("open"), where=fits)
    configs = [{"block": 16}, {"block": 36}, {"block": 48, "threads": 32}, {"block": 96}]
    chain = read(declared, configs, [np.zeros(96, np.float32)])
    assert [config["block"] for config in chain.configs] == [16, 48]
    assert chain.original({"block": 48, "threads": 32}) == {"block": 48, "threads": 32}
    with pytest.raises(RejectedError, match=r"test_chains.py:\d+: where of make rejects block=36"):
        read(declared, [{"block": 36}], [np.zeros(96, np.float32)])


@pytest.mark.parametrize(
    ("configs", "inputs", "says"),
    [
        ([{"blok": 16}], None, "config 0 of make has 'blok', which is not a parameter"),
        ([], None, "make has no configs"),
        ("all", None, "no list of mappings"),
        (CONFIGS, [np.zeros(64)], "takes 2 inputs, not 1"),
        (CONFIGS, [np.zeros((8, 8)), 1.0], r"input A of make has the shape \(8, 8\)"),
        (CONFIGS, [np.zeros(64, np.float32), "two"], "takes f as a number"),
        (
            CONFIGS,
            [np.zeros(64), 1.0],
            "input A of make has the dtype float64, the kernel takes float32",
        ),
        ([{"block": len}], None, "config 0 of make: block: .* cannot be a value of a config"),
        (CONFIGS, None, "set_autotune_inputs"),
    ],
)
def test_what_makes_no_sense_is_named(configs: object, inputs: object, says: str) -> None:
    """A ValueError, as TileLang's would be, and one line that names the key."""
    with pytest.raises(UsageError, match=says) as raised:
        read(scale(64, with_factor=True), configs, inputs)
    assert isinstance(raised.value, ValueError)


def test_what_is_asked_for_is_kept() -> None:
    """Tolerances mean what they mean to TileLang; a check of the user's own takes the reference's place."""
    asked = read(scale(64), CONFIGS, ref_prog=len, rtol=1e-3).found.recipe
    assert (asked.tolerance.rtol, asked.tolerance.share) == (1e-3, 0.01)
    assert (asked.tolerance.is_elementwise, asked.reference) == (True, len)
    assert asked.compile_flags == ("-O2", "-g")
    own = read(scale(64), CONFIGS, ref_prog=len, manual_check_prog=max).found.recipe
    assert (own.reference, own.tolerance) == (None, None)
