"""``import tileyard`` from scripts, ``python -c``, threads and notebooks."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from tests.conftest import KERNELS, CommandLine

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
study = tileyard.tune(
    make,
    arguments={"N": 256},
    space={"block": [16, 32, 64, 128]},
    where=lambda block: block <= limit,
    reference=lambda A: A + np.float32(offset),
)
kernel = study.best.load()
A = np.arange(256, dtype=np.float32)
assert np.array_equal(kernel(A), A + 3)
assert len(study.trials) == 3, study.trials
print("winner", study.best.config)
"""


@pytest.fixture
def home(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and locks of its own for calls in this process."""
    monkeypatch.setenv("TILEYARD_HOME", str(cli.home))
    monkeypatch.setenv("TILEYARD_LOCK_DIR", str(cli.cwd / "locks"))
    return cli.home


def test_from_a_script_with_lambdas_and_closures(cli: CommandLine) -> None:
    """A script's own functions, closures and lambdas are called in its own process."""
    file = cli.cwd / "script.py"
    file.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)],
        cwd=cli.cwd,
        env=cli.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = "winner {'block':"
    assert expected in done.stdout


def test_from_python_c(cli: CommandLine) -> None:
    """``python -c`` works with a kernel from a file."""
    code = (
        "import tileyard; "
        f"s = tileyard.tune({FAULTS + '::add_one'!r}, config={{'fault': ['none']}}); "
        "print(s.best.config['fault'])"
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
    expected = "none\n"
    assert done.stdout == expected


def test_from_a_thread(home: Path) -> None:
    """A thread other than the main one may tune."""
    found: list[object] = []

    def work() -> None:
        study = tileyard.tune(f"{FAULTS}::add_one", config={"fault": ["none"], "block": [32]})
        found.append(study.best.config["block"])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    expected = [32]
    assert found == expected


def test_from_a_notebook(cli: CommandLine) -> None:
    """A notebook's cell tunes a kernel that another cell defines."""
    first, second = SCRIPT.split("limit = 64")
    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    for source in (first, "limit = 64" + second, "study"):
        notebook.cells.append(nbformat.v4.new_code_cell(source))  # type: ignore[no-untyped-call]
    saved = dict(os.environ)
    os.environ.update(cli.environment())
    try:
        NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(cli.cwd))
    finally:
        os.environ.clear()
        os.environ.update(saved)
    expected = "winner {'block':"
    assert expected in str(notebook.cells[1].outputs)
    assert "text/html" in str(notebook.cells[2].outputs)


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


def test_a_study_without_a_winner_says_how_its_configs_ended(home: Path) -> None:
    """``best`` is an error that counts the outcomes."""
    study = tileyard.tune(f"{FAULTS}::add_one", config={"fault": ["wrong_result"], "block": [32]})
    with pytest.raises(tileyard.TileyardError, match="no config of add_one passed: 1 mismatch"):
        _ = study.best


def test_an_unknown_kernel_is_refused(home: Path) -> None:
    """What the command line refuses is an exception here."""
    with pytest.raises(tileyard.TileyardError, match="there is no kernel 'nothing'"):
        tileyard.tune(f"{KERNELS / 'light.py'}::nothing")
