"""What makes lowering cheaper: the same source comes out, and what can be proved is proved.

The shortcuts stay in the process that has them, so it is one of its own. This one has none.
"""

import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tileyard.frontend.no_device import ASSUMED_TARGET, TARGET_VARIABLE
from tileyard.targets.cuda.shortcuts import SWITCH, NoRefuterError, import_tilelang, load_refuter

ROOT = Path(__file__).parents[4]

SHORTENED = """
import json, sys
from pathlib import Path
from tileyard.targets.cuda.shortcuts import import_tilelang

refuter = import_tilelang(Path(sys.argv[1]))
from tests.unit.targets.cuda.lowered_sources import lower_sources
from tilelang import tvm

sources = lower_sources()
counts = [refuter.tileyard_refuter_asked(), refuter.tileyard_refuter_refuted()]

x, y = tvm.tirx.Var("x", "int32"), tvm.tirx.Var("y", "int32")
verdicts = []
for claim in (x * x >= x, x * x != 7, x * y <= 8 * y, x * x != 9):
    prover = tvm.arith.Analyzer()
    prover.bind(x, tvm.ir.Range(0, 10))
    prover.bind(y, tvm.ir.Range(0, 100))
    before = refuter.tileyard_refuter_asked(), refuter.tileyard_refuter_refuted()
    proved = bool(prover.can_prove(claim))
    verdicts.append([proved, refuter.tileyard_refuter_asked() - before[0], \
refuter.tileyard_refuter_refuted() - before[1]])
print(json.dumps({"sources": sources, "counts": counts, "verdicts": verdicts}))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shortened(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process with the shortcuts makes of some kernels, and proves."""
    env = {**os.environ, TARGET_VARIABLE: ASSUMED_TARGET}
    argv = [sys.executable, "-c", SHORTENED, str(tmp_path_factory.mktemp("caches"))]
    done = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_sources_are_the_same_with_and_without(
    shortened: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gemm, an elementwise kernel and a reduction lower to the same text, with most questions answered."""
    monkeypatch.setenv(TARGET_VARIABLE, ASSUMED_TARGET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TileLang and torch warn while they are imported
        assert import_tilelang(tmp_path, {SWITCH: "1"}) is None
    lowered_sources = importlib.import_module("tests.unit.targets.cuda.lowered_sources")
    assert shortened["sources"] == lowered_sources.lower_sources()
    asked, refuted = shortened["counts"]
    assert asked > 100
    assert refuted > 0.9 * asked


def test_what_holds_is_still_proved(shortened: dict[str, Any]) -> None:
    """True claims that need a search reach Z3 and are proved; false ones are denied without it."""
    expected = [[True, 1, 0], [True, 1, 0], [False, 1, 1], [False, 1, 1]]
    assert shortened["verdicts"] == expected


def test_without_a_compiler_all_is_asked_of_z3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no C compiler nothing is loaded, and the reason is said."""
    monkeypatch.delitem(sys.modules, "tilelang", raising=False)
    message = "not on this machine"
    with pytest.raises(NoRefuterError, match=message):
        load_refuter(tmp_path, "no-such-compiler")
