"""What makes lowering cheaper: the same source comes out, and what can be proved is proved.

Each test is a process of its own, as the shortcuts stay in the process that has them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tileyard.frontend.no_device import ASSUMED_TARGET, TARGET_VARIABLE
from tileyard.targets.cuda.shortcuts import NoRefuterError, load_refuter

ROOT = Path(__file__).parents[4]

LOWER = """
import hashlib, json, sys
from pathlib import Path
from tileyard.targets.cuda.shortcuts import import_tilelang

refuter = import_tilelang(Path(sys.argv[1]))
from tilelang import tvm
from tileyard.frontend.tilelang import make_kernel
from tileyard.model import Elaborated
from tileyard.targets.cuda.lowering import lower

sys.path[:0] = ["benchmarks", "tests/kernels"]
import cuda_gemm, elementwise, reductions

kernels = [cuda_gemm.gemm(**cuda_gemm.CONFIGS[i]) for i in (0, 5)]
kernels += [elementwise.add.get_tir(M=64, N=4096), reductions.softmax.get_tir(M=64, N=256)]
sources = []
for func in kernels:
    made = make_kernel(func, name="kernel", with_tir=True)
    lowered = lower(Elaborated(kernel=made.kernel, tir=made.tir, lines={}, specs=(), scalars=()), "sm_80")
    sources.append(hashlib.sha256(lowered.source.encode()).hexdigest())
counts = [refuter.tileyard_refuter_asked(), refuter.tileyard_refuter_refuted()] if refuter else [0, 0]
print(json.dumps([sources, counts]))
"""

PROVE = """
import json, sys
from pathlib import Path
from tileyard.targets.cuda.shortcuts import import_tilelang

refuter = import_tilelang(Path(sys.argv[1]))
from tilelang import tvm

x, y = tvm.tirx.Var("x", "int32"), tvm.tirx.Var("y", "int32")
verdicts = []
for claim in (x * x >= x, x * x != 7, x * y <= 8 * y, x * x != 9):
    prover = tvm.arith.Analyzer()
    prover.bind(x, tvm.ir.Range(0, 10))
    prover.bind(y, tvm.ir.Range(0, 100))
    before = refuter.tileyard_refuter_asked(), refuter.tileyard_refuter_refuted()
    proved = bool(prover.can_prove(claim))
    verdicts.append([proved, refuter.tileyard_refuter_asked() - before[0], refuter.tileyard_refuter_refuted() - before[1]])
print(json.dumps(verdicts))
"""


def _run(code: str, caches: Path, environ: dict[str, str]) -> list[list[int]]:
    env = {**os.environ, TARGET_VARIABLE: ASSUMED_TARGET, **environ}
    argv = [sys.executable, "-c", code, str(caches)]
    done = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_sources_are_the_same_with_and_without(tmp_path: Path) -> None:
    """Gemms, an elementwise kernel and a reduction lower to the same text, with most questions answered."""
    sources, (asked, refuted) = _run(LOWER, tmp_path, {})
    expected, counts = _run(LOWER, tmp_path, {"TILEYARD_PLAIN_LOWERING": "1"})
    assert sources == expected
    assert counts == [0, 0]
    assert asked > 100
    assert refuted > 0.9 * asked


@pytest.mark.slow
def test_what_holds_is_still_proved(tmp_path: Path) -> None:
    """True claims that need a search reach Z3 and are proved; false ones are denied without it."""
    expected = [[True, 1, 0], [True, 1, 0], [False, 1, 1], [False, 1, 1]]
    assert _run(PROVE, tmp_path, {}) == expected


def test_without_a_compiler_all_is_asked_of_z3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no C compiler nothing is loaded, and the reason is said."""
    monkeypatch.delitem(sys.modules, "tilelang", raising=False)
    message = "not on this machine"
    with pytest.raises(NoRefuterError, match=message):
        load_refuter(tmp_path, "no-such-compiler")
