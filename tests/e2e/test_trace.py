"""``tileyard trace`` of a kernel: one block, by roles and what is in flight, as viewers read it."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.own_authors import OwnCommandLine
from tests.trace_format import require_valid

pytestmark = pytest.mark.slow

SOURCE = (ROOT / "examples" / "gemm.py").read_text(encoding="utf-8")
SIZES = ("--arg", "M=256", "--arg", "N=256", "--arg", "K=128", "--config", "block_K=32")


def test_a_block_is_traced_as_tilelang_plans_it(tmp_path: Path) -> None:
    """A role that copies and one that multiplies; each copy is in flight from its issue until it has landed,
    as many at once as the pipeline has stages of both tiles.
    """
    (tmp_path / "gemm.py").write_text(SOURCE, encoding="utf-8")
    cli = OwnCommandLine(tmp_path)
    planned = ("trace", "gemm.py::gemm", *SIZES, "--pipeline", "tilelang")
    done = cli.run(*planned, "-o", "k.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "role 1: tma: 8 operations, up to 4 in flight" in done.stdout.splitlines()
    document = json.loads((tmp_path / "k.json").read_bytes())
    require_valid(document)
    events = document["traceEvents"]
    names = {one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert names == {"role 1", "role 2", *(f"role 1: tma {slot}" for slot in range(4))}
    copies = [one for one in events if one["ph"] == "X" and one["cat"] == "tma"]
    tiles = Counter(one["name"].partition("[")[0] for one in copies)
    assert tiles == {"tma A_tile": 4, "tma B_tile": 4}
    line = SOURCE[: SOURCE.index("T.copy(A")].count("\n") + 1
    assert {one["args"]["line"] for one in copies if "A_tile" in one["name"]} == {f"gemm.py:{line}"}
    assert len([one for one in events if one["ph"] == "s"]) == len(copies)
    spans = json.loads(cli.run(*planned, "--json").stdout)["spans"]
    issued = Counter(one["begin"] for one in spans if one["text"].startswith("issue "))
    assert issued == Counter(one["begin"] for one in spans if one["unit"])

    done = cli.run("trace", "20261130", "--arg", "K=128")
    assert done.returncode == 2
    assert "--arg has no effect for a run: it is for FILE::KERNEL" in done.stderr
