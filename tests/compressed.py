"""Sparse matrices in the format that TileLang's documentation gives for ``T.gemm_sp``."""

import numpy as np
from numpy.typing import NDArray

from tileyard.ir.dtypes import name_of, sparse_group


def draw_sparse(shape: tuple[int, int], dtype: str, seed: int) -> NDArray[np.generic]:
    """A matrix of small numbers, of which each group in a row has as many zeros as it must have, or more."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(-4, 5, shape).astype(dtype)
    group = 2 if dense.itemsize == 4 else 4
    for groups in dense.reshape(shape[0], -1, group):
        for one in groups:
            one[rng.permutation(group)[: group // 2]] = 0
    return dense


def compress(
    dense: NDArray[np.generic], meta: str
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """What is not 0 of ``dense``, and the places that it has there as numbers of type ``meta``. A group of
    four with fewer than two numbers fills up with zeros, so that the places ascend.
    """
    columns = dense.shape[1]
    group = sparse_group(name_of(dense.dtype))
    each = np.dtype(meta).itemsize * 2
    kept: list[list[np.generic]] = []
    words: list[list[int]] = []
    for row in dense:
        kept.append([])
        chunks = []
        for start in range(0, columns, group):
            places = [i for i in range(group) if row[start + i] != 0]
            if group == 2:
                place = (places or [0])[0]
                kept[-1].append(row[start + place])
                chunks.append(0b1110 if place else 0b0100)
                continue
            first, second = sorted(
                {*places, *[i for i in (0, 1, 3) if i not in places][: 2 - len(places)]}
            )
            kept[-1] += [row[start + first], row[start + second]]
            chunks.append(first | second << 2)
        words.append(
            [
                sum(chunk << 4 * i for i, chunk in enumerate(chunks[at : at + each]))
                for at in range(0, len(chunks), each)
            ]
        )
    packed = np.array(words, np.uint64).astype(f"uint{4 * each}").view(meta)
    return np.array(kept, dense.dtype), packed
