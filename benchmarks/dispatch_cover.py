"""Configs that a dispatch table needs, level by level of coverage, beside those of the greedy choice.

    python benchmarks/dispatch_cover.py [TABLE] [--orders 100]

TABLE has a line for each config that is fast enough for a shape; columns named in CONFIG are the config's,
MEASURED are left out, all others are the shape's. By default it is tests/data/moe_dse_A100_99.csv.gz: the
configs of a MoE kernel within 1 % of the best, for 288 shapes of an A100. Source:
github.com/zksainx/pipeweave, commit 55e0317, pipetuning_test/moe_dse/moe_dse_A100_99.csv without its measured
columns, Apache-2.0.

The greedy choice is the best of several: where configs add equally many shapes, by name, and in ``--orders``
random orders.
"""

import argparse
import csv
import gzip
import random
import time
from pathlib import Path

from tileyard.verbs.tune.plan.table import choose_greedily, draw_curve, find_fewest

TABLE = Path(__file__).parent.parent / "tests" / "data" / "moe_dse_A100_99.csv.gz"
CONFIG = (
    *("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"),
    *("num_warps", "num_stages"),
)
MEASURED = ("avg_duration", "sample_count")


def read_table(path: Path) -> tuple[dict[str, frozenset[int]], int]:
    """The shapes that each config serves, by number, and how many there are."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        rows = list(csv.DictReader(lines))
    shapes: dict[tuple[str, ...], int] = {}
    served: dict[str, set[int]] = {}
    for row in rows:
        shape = tuple(row[key] for key in row if key not in (*CONFIG, *MEASURED))
        config = ",".join(f"{key}={row[key]}" for key in CONFIG)
        served.setdefault(config, set()).add(shapes.setdefault(shape, len(shapes)))
    return {config: frozenset(own) for config, own in served.items()}, len(shapes)


def count_greedily(served: dict[str, frozenset[int]], count: int, orders: int) -> list[int]:
    """The most shapes that a greedy choice serves with 1, 2, ... configs, whichever equal one is first."""
    names = sorted(served)
    best: list[int] = []
    for number in range(orders + 1):
        renamed = {f"{i:06d}": served[name] for i, name in enumerate(names)}
        chosen, reached = choose_greedily(renamed, [1.0] * count), frozenset[int]()
        found = []
        for name in chosen:
            reached |= renamed[name]
            found.append(len(reached))
        longest = max(len(best), len(found))
        padded = [one + [count] * (longest - len(one)) for one in (best, found) if one]
        best = [max(at) for at in zip(*padded, strict=True)]
        random.Random(number).shuffle(names)
    return best[: best.index(max(best)) + 1]


def main() -> None:
    """Print both curves, and where they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    parser.add_argument("--orders", type=int, default=100)
    options = parser.parse_args()
    served, count = read_table(options.table)
    began_s = time.perf_counter()
    table = find_fewest(served)
    between_s = time.perf_counter()
    curve = draw_curve(served, [1.0] * count, len(table), limit_s=600.0)
    ended_s = time.perf_counter()
    ours = [len(frozenset().union(*(served[name] for name in chosen))) for chosen in curve]
    greedy = count_greedily(served, count, options.orders)
    print(f"{count} shapes, {len(served)} configs of which each serves one at least")
    print("configs  shapes  greedy")
    for number in range(1, max(len(ours), len(greedy)) + 1):
        pair = [(*reached, *[count] * number)[number - 1] for reached in (ours, greedy)]
        print(
            f"{number:7}  {pair[0]:6}  {pair[1]:6}  {pair[0] / count:6.1%}  {pair[1] / count:6.1%}"
        )
    fewer = more = 0
    for level in range(1, count + 1):
        mine, theirs = (
            next(i for i, reached in enumerate(found, start=1) if reached >= level)
            for found in (ours, greedy)
        )
        fewer, more = fewer + (mine < theirs), more + (mine > theirs)
    print(f"all shapes: {len(table)} configs, greedily {len(greedy)}")
    print(f"of {count} levels of coverage: fewer configs at {fewer}, more at {more}")
    print(f"the table took {between_s - began_s:.2f} s, the curve {ended_s - between_s:.2f} s")


if __name__ == "__main__":
    main()
