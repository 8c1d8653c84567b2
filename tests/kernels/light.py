"""A kernel for what is refused before any kernel runs: importing it costs no import of TileLang."""

import tileyard


@tileyard.kernel(space={"block": [32, 64]}, shapes={"default": {"N": 256}})
def add_one(N, block=32):
    raise AssertionError(f"elaborated for N={N} and block={block}")
