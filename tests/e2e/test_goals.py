"""Studies that look for more than short times, as a user meets them."""

import pytest
from tests.conftest import DECIDED, CommandLine

pytestmark = pytest.mark.slow

KERNEL = """
import tilelang.language as T

import tileyard


@tileyard.kernel(
    space={"block": [32, 64, 128, 256]}, shapes={"some": {"N": 256}}, reference=lambda A: A + 1
)
def plus_one(N, block=256):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            A_tile = T.alloc_shared((block,), "float32")
            T.copy(A[bx * block], A_tile)
            for i in T.Parallel(block):
                A_tile[i] = A_tile[i] + 1.0
            T.copy(A_tile, B[bx * block])

    return main
"""


def test_what_exceeds_a_bound_is_not_run_and_the_rest_has_a_pareto_set(
    knowing: CommandLine,
) -> None:
    """Also the default, and a config that is recorded from a study without the bound; a bound that excludes
    all is one line.
    """
    knowing.env.update(DECIDED)
    (knowing.cwd / "plus.py").write_text(KERNEL, encoding="utf-8")
    knowing.run("tune", "plus.py", "--config", "block=128")
    command = ("tune", "plus.py", "--bound", "scratch_bytes=256")
    found = knowing.run_json(*command, "--pareto", "scratch_bytes")
    ended = {trial["config"]["block"]: trial for trial in found["trials"]}
    assert {block for block in ended if ended[block]["exceeds"]} == {256, 128}
    assert ended[256]["message"] == "scratch_bytes is 1024, and its bound 256"
    assert ended[128]["reused"]
    events = (knowing.home / "runs" / f"{found['run']}.jsonl").read_text(encoding="utf-8")
    started = [line for line in events.splitlines() if "case_started" in line]
    assert started
    assert not [line for line in started if "c0001" in line]
    amounts = [one["amount"] for one in found["pareto"]]
    assert 128 in amounts
    assert amounts == sorted(amounts, reverse=True)
    assert found["best"]["id"] == found["pareto"][0]["trial"]
    none = knowing.run("tune", "plus.py", "--bound", "scratch_bytes=1")
    assert none.returncode == 1
    last = none.stdout.splitlines()[-1]
    assert last == "no config passed: scratch_bytes is 128 to 1024, and its bound 1"
