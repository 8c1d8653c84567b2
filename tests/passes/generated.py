"""Pipelined loops, put together from pieces: the caller says how each choice is made."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

ROWS = 12
HEAD = """\
def f(A: inout.float32[12, 4], B: float32[12, 4], N: int32[12], C: inout.float32[12, 4], \
D: inout.float32[12, 4], G: float16[12, 64, 16], H: float16[12, 16, 16], P: inout.float32[64, 16], n: int32):
    bx: grid[1]
    threads(128)
    a: shared.float32[4]
    b: shared.float32[4]
    s: shared.float32[4]
    t: shared.float32[4]
    c: fragment.float32[4]
    d: fragment.float32[4]
    u: fragment.float32[4]
    g: shared.float16[64, 16]
    h: shared.float16[16, 16]
    p: fragment.float32[64, 16]
    q: fragment.float32[1]

    fill(c, 0.5)
    fill(d, 0.25)
    fill(u, 2.0)
    fill(p, 0.125)
"""
COPIES = (
    "copy($I[K, :], $S)",
    "copy($I[N[K], :], $S)",
    "copy($I[ROW, :], $S)",
    "copy($I[(K + ROW) % 12, :], $S)",
    "fill($S, 1.0)\ncopy($I[K, 0 : +2], $S[1 : +2])",
    "for i@ in parallel(4):\n    $S[i@] = $I[K, i@]",
    "for i@ in parallel(4):\n    $S[i@] = $I[ROW, 3 - i@]",
    "copy($R, $S)",
    "copy($R, $F)",
    "copy($R, $O[K, :])",
)
PRODUCTS = (
    "copy(G[K, :, :], g)\ncopy(H[K, :, :], h)\ngemm(g, h, p)",
    "copy(G[K, :, :], g)\ncopy(H[ROW, :, :], h)\ngemm(g, h, p, clear=True)",
    "copy(G[0, :, :], g)\ncopy(H[K, :, :], h)\nif K > 2:\n    gemm(g, h, p)",
)
MAPS = (
    "for i@ in parallel(4):\n    $F[i@] = $F[i@] * 0.5 + $R[i@]",
    "for i@ in parallel(4):\n    $F[i@] = $R[i@] + $U[i@]",
    "for i@ in parallel(4):\n    $S[i@] = $R[i@] + 1.0",
    "for i@ in parallel(64):\n    for j@ in parallel(16):\n        p[i@, j@] = p[i@, j@] * 0.5",
    "for i@ in parallel(4):\n    atomic_add($O[0, i@], $R[i@])",
)
NESTED = (
    "for j@ in serial(2):\n    for i@ in parallel(4):\n        $F[i@] = $F[i@] + $R[(i@ + j@) % 4]",
    "for j@ in serial(N[K] % 3):\n    copy($I[(K + j@) % 12, :], $S)\n"
    "    for i@ in parallel(4):\n        $F[i@] = $F[i@] + $S[i@]",
    "for j@ in pipelined(3, stages=2):\n    copy($I[j@, :], $S)\n    for i@ in parallel(4):\n"
    "        $F[i@] = $F[i@] + $S[i@]",
)
LETS = (
    "x@ = $R[0]\nfill($F, x@)",
    "x@ = $R[0] + $U[0]\n$F[0] = x@",
    "y@ = ROW + 1\ncopy($I[y@, :], $S)",
)
GUARDS = (
    "if N[K] > 5:\n    copy($I[K, :], $S)",
    "if N[K] > 5:\n    for i@ in parallel(4):\n        $F[i@] = $F[i@] + $R[i@]",
    "if $R[0] > 2.0:\n    copy(B[K, :], $S)",
    "if N[K] > 5:\n    copy(A[K, :], $S)\nelse:\n    copy(B[K, :], $S)",
)
OTHERS = (
    "fill($S, 0.0)",
    "$F[0] = $F[0] + $R[0]",
    "$O[K, 1] = $R[0] + 1.0",
    'copy($R, $F)\nreduce($F, q, kind="sum", axis=0)\n$O[K, 2] = q[0]',
)
PIECES = (*COPIES, *PRODUCTS, *MAPS, *NESTED, *LETS, *GUARDS, *OTHERS)
"""What bodies are made of: ``K`` is the loop's variable, ``ROW`` a Let of it, ``@`` the piece's number.

``$I`` is an array that is read, ``$O`` one that is written, ``$S`` and ``$F`` tiles that are written, ``$R``
and ``$U`` tiles that are read.
"""

SHARED, FRAGMENTS, ARRAYS = ("a", "b", "s", "t"), ("c", "d", "u"), ("C", "D", "A")
STAGES = tuple(map(str, range(6)))
TRIPS = ("n", "n + 1", *map(str, range(10)))
AROUND = ("", "", "", "if N[K] > 3:", "if c[0] < 9.0:", "if n > 4:")

Pick = Callable[[Sequence[str]], str]
"""Chooses one of several texts."""


def indented(text: str, depth: int) -> str:
    """Lines of a block."""
    return "".join(f"{'    ' * depth}{line}\n" for line in text.splitlines())


@dataclass
class _Body:
    """Fills in pieces: what a piece writes, none before has written, unless ``is_once`` is False."""

    pick: Pick
    is_once: bool
    ready: list[str]
    written: set[str] = field(default_factory=set)

    def piece(self, text: str) -> str | None:
        """A piece with arrays and tiles; None where nothing is left that it could write."""
        chosen = {}
        for word, choices in (("$S", SHARED), ("$F", FRAGMENTS), ("$O", ARRAYS)):
            left = tuple(one for one in choices if not (self.is_once and one in self.written))
            if word in text and not left:
                return None
            chosen |= {word: self.pick(left)} if word in text else {}
        product = {"p"} if "p[" in text or "gemm" in text else set()
        if self.is_once and product & self.written:
            return None
        self.written |= {*chosen.values(), *product}
        chosen |= {w: self.pick(tuple(self.ready)) for w in ("$R", "$U") if w in text}
        chosen |= {"$I": self.pick(("A", "B"))} if "$I" in text else {}
        if "$S" in text and ("else" in text or not text.startswith("if")):
            self.ready.append(chosen["$S"])
        for word, name in chosen.items():
            text = text.replace(word, name)
        return text


def make_loop(pick: Pick, name: str, ready: Sequence[str], pieces: Sequence[str]) -> str:
    """A pipelined loop, perhaps guarded within, or in another loop. Tiles that are ``ready`` can be read."""
    trips, start = pick(TRIPS), pick(("", "", ", start=1", ", start=n // 4"))
    body = _Body(pick, pick(("once", "once", "twice")) == "once", list(ready))
    texts = [body.piece(pick(pieces)) for _ in range(int(pick("2345678")))]
    numbered = [text.replace("@", f"_{name}{i}") for i, text in enumerate(texts) if text]
    text = "ROW = N[K]\n" + "\n".join(numbered)
    around = pick(AROUND)
    if around:
        text = f"{around}\n{indented(text, 1)}"
    text = f"for K in pipelined({trips}{start}, stages={pick(STAGES)}):\n{indented(text, 1)}"
    if pick(("", "", "", "twice")):
        text = f"for t_{name} in serial(2):\n{indented(text, 1)}"
    return text.replace("K", f"k_{name}").replace("ROW", f"row_{name}")


def make_program(pick: Pick, pieces: Sequence[str] = PIECES) -> str:
    """One or two loops over the same tiles, which are perhaps filled before, and perhaps used behind."""
    text, ready, last = "", list(FRAGMENTS), ""
    if pick(("", "", "filled")):
        text = "".join(f"fill({tile}, {number}.0)\n" for number, tile in enumerate(SHARED))
        ready += SHARED
        last = pick(("", "copy(a, C[11, :])\n", "copy(b, C[11, :])\n"))
    for name in pick(("p", "p", "pq")):
        text += make_loop(pick, name, ready, pieces)
    return finished(f"{text}{last}")


def finished(text: str) -> str:
    """A Program of these statements, with what its registers hold in front of them and at their end."""
    return HEAD + indented(
        f"{text}copy(c, C[10, :])\ncopy(d, D[11, :])\ncopy(u, A[11, :])\ncopy(p, P)", 1
    )


def make_arrays() -> list[np.ndarray]:
    """Small numbers for the parameters, the same every time."""
    rng = np.random.default_rng(0)
    table = (rng.permutation(ROWS) % 11).astype(np.int32)
    a, b, c, d = (rng.integers(1, 9, (ROWS, 4)).astype(np.float32) for _ in range(4))
    g, h = (rng.integers(0, 3, (ROWS, rows, 16)).astype(np.float16) for rows in (64, 16))
    return [a, b, table, c, d, g, h, np.zeros((64, 16), np.float32)]


class Dealer:
    """Chooses at random, and everything once before anything again."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._decks: dict[tuple[str, ...], list[str]] = {}

    def pick(self, choices: Sequence[str]) -> str:
        """One of the choices."""
        deck = self._decks.setdefault(tuple(choices), [])
        if not deck:
            deck += choices
            self._random.shuffle(deck)
        return deck.pop()
