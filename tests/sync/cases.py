"""The correct kernels with sizes that give each loop more iterations than stages, and their results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CORRECT = Path(__file__).parent / "correct.py"

Inputs = list[np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kernel of ``correct.py``: what it is made with, what it is given, and what it makes of that.
    ``generated`` are the arguments with which TileLang generates code for sm_90a, whose tiles have to be
    larger.
    """

    arguments: Mapping[str, int]
    generated: Mapping[str, int]
    make: Callable[[np.random.Generator], Inputs]
    expect: Callable[..., Inputs]


_SIZES = {"M": 32, "N": 32, "K": 96}
_LARGE = {"M": 128, "N": 128, "K": 384, "block": 64}


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    product: np.ndarray = a.astype(np.float32) @ b.astype(np.float32)
    return product


def _two(rng: np.random.Generator) -> Inputs:
    return [rng.integers(-3, 4, shape).astype(np.float16) for shape in ((32, 96), (96, 32))]


def _three(rng: np.random.Generator) -> Inputs:
    mask = np.array([[1, 1, 0, 1, 1, 1], [0, 1, 1, 0, 0, 1]], np.int32)
    return [*_two(rng), mask]


def _mixed(rng: np.random.Generator) -> Inputs:
    left, right = _two(rng)
    return [left, right.astype(np.int8)]


def _rows(rng: np.random.Generator) -> Inputs:
    return [rng.standard_normal((96, 16)).astype(np.float32)]


def _masked(a: np.ndarray, b: np.ndarray, mask: np.ndarray) -> Inputs:
    kept = np.repeat(np.repeat(mask, 16, axis=0), 16, axis=1)
    return [_product(a * kept, b)]


def _halved(x: np.ndarray) -> Inputs:
    total = np.zeros(x.shape[1], np.float32)
    for row in x:
        total = total * np.float32(0.5) + row
    return [total]


def _summed(a: np.ndarray, b: np.ndarray) -> Inputs:
    product = _product(a, b)
    return [product, product.reshape(32, 2, 16).sum(axis=2)]


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Inputs:
    weights = np.maximum(_product(q, k.T), 0).astype(np.float16)
    return [_product(weights, v)]


def _gemm(make: Callable[[np.random.Generator], Inputs] = _two) -> Case:
    return Case(arguments=_SIZES, generated=_LARGE, make=make, expect=lambda a, b: [_product(a, b)])


def _doubled() -> Case:
    return Case(
        arguments={"N": 96},
        generated={"N": 384, "block": 64},
        make=_rows,
        expect=lambda x: [x * 2],
    )


CASES = {
    "two_stages": _gemm(),
    "three_stages": _gemm(),
    "three_roles": _gemm(),
    "persistent": _gemm(),
    "guarded": Case(arguments=_SIZES, generated=_LARGE, make=_three, expect=_masked),
    "one_barrier": _doubled(),
    "ahead": _doubled(),
    "add": Case(
        arguments={"N": 96},
        generated={"N": 768, "block": 128},
        make=lambda rng: [rng.standard_normal(96).astype(np.float32) for _ in range(2)],
        expect=lambda x, y: [x + y],
    ),
    "gathered": _doubled(),
    "in_one_loop": _doubled(),
    "stores": _doubled(),
    "stored_by_another": _doubled(),
    "one_in_flight": _gemm(),
    "turns": Case(
        arguments={"N": 8},
        generated={"N": 8, "block": 128},
        make=lambda rng: [rng.standard_normal((8, 16)).astype(np.float32)],
        expect=_halved,
    ),
    "converted": _gemm(_mixed),
    "epilogue": Case(arguments=_SIZES, generated=_LARGE, make=_two, expect=_summed),
    "attention": Case(
        arguments={"length": 64, "dim": 16},
        generated={"length": 256, "dim": 64, "block": 64},
        make=lambda rng: [rng.integers(-2, 3, (64, 16)).astype(np.float16) for _ in range(3)],
        expect=_attended,
    ),
}
