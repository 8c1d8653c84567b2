"""``import tileyard`` from scripts, ``python -c``, threads and notebooks."""

import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from tests.conftest import DECIDED, KERNELS, CommandLine
from tests.e2e.own_process import refuse_kernels
from tests.e2e.warm_script import run_script

import tileyard

pytestmark = pytest.mark.slow

FAULTS = str(KERNELS / "faults.py")

SCRIPT = """
import numpy as np
import tilelang.language as T
import tileyard

offset = 3.0

def make(N, block):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            tile = T.alloc_fragment((block,), "float32")
            T.copy(A[bx * block], tile)
            for i in T.Parallel(block):
                tile[i] = tile[i] + offset
            T.copy(tile, B[bx * block])
    return main

limit = 64
def tune(**options):
    return tileyard.tune(
        make,
        arg={"N": 256},
        space={"block": [32, 64, 128]},
        where=lambda block: block <= limit,
        reference=lambda A: A + np.float32(offset),
        **options,
    )

study = tune()
assert len(study.result.trials) == 2, study.trials
while study.result.disturbed:
    study = tune(finals=True)
kernel = study.best.load()
A = np.arange(256, dtype=np.float32)
assert np.array_equal(kernel(A), A + 3)
print("winner", study.best.config)
"""


PLUS_ONE = """
import tilelang
import tilelang.language as T


def right(A):
    return A + 1


@tilelang.jit
def plus_one(N, block=32):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 1.0

    return main
"""


@pytest.fixture
def home(cli: CommandLine, one_core: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and locks of its own for calls in this process, on one core."""
    monkeypatch.setenv("TILEYARD_HOME", str(cli.home))
    monkeypatch.setenv("TILEYARD_LOCK_DIR", str(cli.cwd / "locks"))
    return cli.home


def test_from_a_script_with_lambdas_and_closures(cli: CommandLine) -> None:
    """A script's own functions, closures and lambdas are called in its own process."""
    file = cli.cwd / "script.py"
    file.write_text(SCRIPT, encoding="utf-8")
    done = run_script(cli, file)
    assert done.returncode == 0, done.stderr
    expected = "winner {'block':"
    assert expected in done.stdout


def test_from_python_c(cli: CommandLine) -> None:
    """``python -c`` works with a kernel from a file, and finds what a command has recorded of it."""
    config = ("--config", "fault=none", "--config", "block=32")
    tuned = cli.run_json("tune", f"{FAULTS}::add_one", *config)
    code = (
        "import tileyard; "
        f"s = tileyard.tune({FAULTS + '::add_one'!r}, config={{'fault': ['none'], 'block': [32]}}); "
        "print(s.best.config['fault'], s.best.trial.id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cli.cwd,
        env=cli.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"none {tuned['best']['id']}\n"


CELLS = {
    SCRIPT.partition("limit = 64")[0]: [],
    "limit = 64\nstudy = tileyard.tune(make, arg={'N': 256}, space={'block': [32, 64, 128]},\n"
    "    where=lambda block: block <= limit, reference=lambda A: A + np.float32(offset))": [
        "display_data: trying N of N configs (N excluded by `where`) tune make target cpu "
        "device cpu:N (N core) run N N s N rejected by `where` best N ns block=N"
    ],
    "study": ["execute_result: <study N of make: N configs>"],
    "study.trials[['block', 'outcome', 'median_ns']].sort_values('block')": [
        "execute_result: block outcome median_ns N N passed N N N passed N"
    ],
    "list(study.trials)": [
        "execute_result: ['block', 'outcome', 'median_ns', 'low_ns', 'high_ns', 'message', 'trial']"
    ],
    "kernel = study.best.load()\nkernel": ["execute_result: <kernel make N=N block=N, target cpu>"],
    "bool((kernel(np.ones(256, np.float32)) == 4).all())": ["execute_result: True"],
    "study.best": ["execute_result: <best config block=N of make: N ns>"],
    "study.plot()": ["execute_result: <StudyFigure size N with N Axes>"],
    "study.plot('progress').axes[0].get_xlabel()": ["execute_result: 'configs that have ended'"],
    "import sys\nsys.modules['pandas'] = None\nstudy.trials": [
        "execute_result: trial config latency N block=N N ns N block=N N ns "
        "the same in all rows: case=make; target=cpu; outcome=passed"
    ],
    "again = tileyard.tune(make, arg={'N': 256}, space={'block': [64]}, check=False)\nagain": [
        "display_data: tune make target cpu device cpu:N (N core) run N N s best N ns block=N",
        "execute_result: <study N of make: N config>",
    ],
}
"""The cells of a notebook, each with what is displayed below it, without numbers."""
TUNER = """
def kernel(block=None):
    return make(256, block)

tuner = tileyard.AutoTuner.from_kernel(kernel, [{'block': 32}, {'block': 64}])
tuner.set_compile_args(out_idx=[-1]).set_profile_args(ref_prog=lambda A: A + 3)
tuner.run(warmup=2, rep=9).config
"""


def mask(text: str) -> str:
    """Text without its numbers and the gaps between columns; all times are in nanoseconds. Whether there were
    finals, and whether an interval is wide, depends on the times.
    """
    text = re.sub(r"\b[um]s\b", "ns", text)
    words = " ".join(re.sub(r"\d[\w.+*-]*", "N", text).split())
    for depends in ("N of N finals and checks ", " (finals)", " [N ns, N ns]"):
        words = words.replace(depends, "")
    return words


@pytest.mark.usefixtures("one_core")
def test_from_a_notebook(cli: CommandLine) -> None:
    """A cell tunes a kernel that another cell defines: one output of progress, and a study is displayed once.
    Its table, its plot and its kernel are objects that a cell displays; without pandas the table is text.
    TileLang's chain shows its progress, its table, and how long its reference takes.
    """
    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    for source in (*CELLS, TUNER):
        notebook.cells.append(nbformat.v4.new_code_cell(source))  # type: ignore[no-untyped-call]
    saved = dict(os.environ)
    os.environ.update(cli.environment(DECIDED))
    try:
        NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(cli.cwd))
    finally:
        os.environ.clear()
        os.environ.update(saved)
    *cells, tuner = notebook.cells
    for cell, expected in zip(cells, CELLS.values(), strict=True):
        outputs = [
            one for one in cell.outputs if one.output_type != "stream"
        ]  # TileLang's warnings
        found = [f"{one.output_type}: {mask(one.data['text/plain'])}" for one in outputs]
        assert found == expected, cell.source
    assert "best: " in notebook.cells[2].outputs[0].data["text/html"]
    assert "image/png" in notebook.cells[8].outputs[0].data
    progress, table, reference, config = (mask(one.data["text/plain"]) for one in tuner.outputs)
    assert progress.startswith("tune kernel target cpu ")
    assert "N configs in N s: N passed" in table
    assert reference == "reference: N ns, N x the time of the best config"
    assert config == "{'block': N}"


def test_compile_gives_a_function(home: Path) -> None:
    """A single PrimFunc becomes a function on NumPy arrays and torch tensors."""
    torch = pytest.importorskip("torch")
    namespace: dict[str, object] = {}
    file = home.parent / "made.py"
    file.write_text(SCRIPT.split("limit = 64")[0], encoding="utf-8")
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), namespace)
    make = namespace["make"]
    assert callable(make)
    kernel = tileyard.compile(make(256, 32))
    given = np.arange(256, dtype=np.float32)
    expected = given + 3
    assert np.array_equal(kernel(given), expected)
    out = np.zeros_like(given)
    kernel(given, out)
    assert np.array_equal(out, expected)
    tensor = kernel(torch.from_numpy(given))
    assert isinstance(tensor, torch.Tensor)
    assert np.array_equal(tensor.numpy(), expected)


@pytest.fixture
def plus_one(home: Path) -> ModuleType:
    """The module of a file with a jit function that declares no reference."""
    file = home.parent / "plus_one_kernels.py"
    file.write_text(PLUS_ONE, encoding="utf-8")
    # Not at the top: it brings TileLang.
    return importlib.import_module("tileyard.frontend.discover").import_file(file)


def test_every_kernel_is_checked_against_the_reference_that_is_given(plus_one: ModuleType) -> None:
    """Also one that a file names, or that tilelang.jit made; given again, it is the one that counts. The best
    one of a study without a winner is an error that counts the outcomes.
    """

    def wrong(array: np.ndarray[Any, Any]) -> object:
        return array + 2

    declared = tileyard.kernel(plus_one.plus_one, reference=wrong)
    kernels = [f"{plus_one.__file__}::plus_one", plus_one.plus_one]
    expected = ["mismatch"] * 2
    ended = [tileyard.tune(one, arg={"N": 64}, reference=wrong) for one in kernels]
    assert [study.result.trials[0].outcome.value for study in ended] == expected
    with pytest.raises(tileyard.TileyardError, match="no config of plus_one passed: 1 mismatch"):
        _ = ended[0].best
    assert tileyard.tune(declared, arg={"N": 64}).result.best is None
    again = tileyard.tune(declared, arg={"N": 64}, reference=plus_one.right)
    assert again.result.trials[0].outcome.value == "passed"


def test_configs_are_built_for_another_target_too(plus_one: ModuleType) -> None:
    """Of a kernel of the calling process, which has to be asked for it."""
    space = {"block": [16, 32]}
    given = {"arg": {"N": 64}, "space": space, "reference": plus_one.right}
    study = tileyard.tune(plus_one.plus_one, also_build="cpu:x86-64-v2", **given)
    (other,) = study.result.also_built
    ended = sorted((one.config["block"], one.outcome.value) for one in other.configs)
    assert other.target == "cpu:x86-64-v2"
    assert ended == [(16, "passed"), (32, "passed")]
    chosen = study.result.best or study.result.leader  # where other work disturbed the finals
    assert chosen is not None
    assert chosen.config["block"] in space["block"]


PLAIN = (
    PLUS_ONE
    + """

def ones(specs):
    return [numpy.ones(spec.shape, spec.dtype) for spec in specs]


def nearly(A):
    assert (A == 1).all()
    return A + 1.1
"""
).replace("import tilelang\n", "import numpy\nimport tilelang\n", 1)


def test_options_declare_what_a_plain_kernel_does_not(cli: CommandLine) -> None:
    """Reference, inputs, tolerance and work, which a TileLang file does not declare, by command line."""
    (cli.cwd / "plain.py").write_text(PLAIN, encoding="utf-8")
    options = ("tune", "plain.py", "--arg", "N=64", "--config", "block=32", "--reference", "nearly")
    given = ("--inputs", "ones", "--rtol", "0.1", "--flops", "3*N")
    study = cli.run_json(*options, *given)
    assert (study["trials"][0]["outcome"], study["flops"]) == ("passed", 192)
    strict = cli.run_json(*options, "--inputs", "ones", "--rtol", "1e-3")
    assert strict["trials"][0]["outcome"] == "mismatch"
    for wrong, expected in (
        (("--inputs", "twos"), "inputs 'twos' is not in the kernel's file"),
        (("--flops", "2*M"), "--flops 2*M: M is not a number of the kernel's arguments"),
    ):
        done = refuse_kernels(cli, *options, *wrong)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert expected in done.stderr


def test_a_space_can_be_given_for_a_kernel_of_a_file(plus_one: ModuleType) -> None:
    """With what of it is to be tried, by any thread. If a check is required, unchecked is never best."""
    found: list[tileyard.Study] = []

    def work() -> None:
        study = tileyard.tune(
            f"{plus_one.__file__}::plus_one",
            arg={"N": 64},
            space={"block": [16, 32, 64]},
            where=lambda block: block < 64,
            require_check=True,
        )
        found.append(study)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    (study,) = found
    assert sorted(trial.config["block"] for trial in study.result.trials) == [16, 32]
    with pytest.raises(tileyard.TileyardError, match=r"2 unchecked \(a check is required\)"):
        _ = study.best


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"reference": len, "check": False}, "reference has no effect with check=False"),
        ({"trials": 0}, "trials 0 is less than 1"),
        ({"trials": "many"}, "trials must be a whole number, not 'many'"),
        ({"budget": "soon"}, "budget: 'soon' is not a duration"),
        ({"run_limit": float("nan")}, "run_limit: nan is not a number of seconds"),
        ({"memory_limit": 0.5}, "memory_limit must be text or a whole number, not 0.5"),
        ({"group_size": 0}, "group_size 0 is neither auto nor a number from 1"),
        ({"arg": "N"}, "arg 'N' is not of the form KEY=VALUE"),
        ({"within": "5%"}, "within has no effect without shapes or several sizes"),
        ({"fresh": True}, r"there is no option 'fresh' \(there is resume=False\)"),
        ({"graph": True}, "graph=True is for GPUs, and not for cpu"),
        ({"check": False, "require_check": True}, "contradict each other"),
    ],
)
def test_an_argument_without_effect_is_refused(
    home: Path, options: dict[str, Any], expected: str
) -> None:
    """In one line."""
    with pytest.raises(tileyard.TileyardError, match=expected) as refused:
        tileyard.tune(f"{KERNELS / 'light.py'}::add_one", **options)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            lambda func: tileyard.tune(func, arg={}),
            "a PrimFunc is not a kernel (tileyard.compile takes one)",
        ),
        (lambda func: tileyard.tune(3), "3 is not a kernel (@tileyard.kernel declares a function)"),
        (lambda func: tileyard.compile(3), "3 is not a kernel"),
        (lambda func: tileyard.compile(func, shape="s"), "shape has no effect on a PrimFunc"),
        (lambda func: tileyard.compile(func, out_idx=[7]), "out_idx names parameter 7"),
    ],
)
def test_what_is_no_kernel_is_refused(
    plus_one: ModuleType, call: Callable[[object], object], expected: str
) -> None:
    """In one short line, however long it is itself."""
    with pytest.raises(tileyard.TileyardError) as refused:
        call(plus_one.plus_one.get_tir(N=64))
    assert expected in str(refused.value)
    assert len(str(refused.value)) < 150


def test_an_unknown_kernel_is_refused(home: Path) -> None:
    """What the command line refuses is an exception here."""
    with pytest.raises(tileyard.TileyardError, match="there is no kernel 'nothing'"):
        tileyard.tune(f"{KERNELS / 'light.py'}::nothing")
