"""``pytest --tileyard --tileyard-dynamic=prepare``: tests run ahead up to their first device block."""

import pytest
from tests.e2e.pytest_tree import KERNELS, Ran, Tree
from tests.e2e.test_pytest_tilelang import BROKEN

pytestmark = pytest.mark.slow

AHEAD = """
    import os, pathlib, pytest, tileyard
    import numpy as np
    from kernels import broken, scale

    def note(name):
        with open(f"{name}.runs", "a") as file:
            file.write("x")

    def build(N):
        return tileyard.compile(scale.get_tir(N=N), out_idx=[-1])

    def run(kernel, N):
        assert kernel(np.ones(N, "float32")).tolist() == [2.0] * N

    def test_loop(tile_device):
        note("loop")
        kernels = {N: build(N) for N in sorted([64, 192])}
        with tile_device():
            note("block")
            for N, kernel in kernels.items():
                run(kernel, N)

    def test_partly_found(tile_device):
        kernel = build(128)
        for N in (256,):
            other = build(N)
        with tile_device():
            run(kernel, 128)

    def test_found(tile_device):
        note("found")
        kernel = build(320)
        with tile_device():
            run(kernel, 320)

    def test_launches_without_a_block():
        for N in (384,):
            run(build(N), N)
        note("launched")

    def test_compiles_behind_its_block(tile_device):
        with tile_device():
            pass
        for N in (448,):
            build(N)

    def test_crashes_ahead(tile_device):
        for N in (512,):
            build(N)
        if not pathlib.Path("crashed").exists():
            pathlib.Path("crashed").touch()
            os.abort()
        with tile_device():
            pass

    def test_broken():
        for N in (64,):
            broken(N)

    def test_fails(tile_device):
        print("printed", "by it")
        assert 1 == 2
"""


def whys(ran: Ran) -> dict[str, str]:
    """How far tests came that ran ahead."""
    steps = ran.report["steps"]
    return {
        step["step"].rpartition("::")[2].removesuffix("#ahead"): step["why"]
        for step in steps
        if step["step"].endswith("#ahead")
    }


def test_tests_compile_ahead_what_reading_does_not_find(tree: Tree) -> None:
    """They are stopped where they would hold a device, and what else becomes of them ahead says nothing."""
    tree.write(kernels=KERNELS + BROKEN, test_ahead=AHEAD)
    cache = {"TILELANG_CACHE_DIR": str(tree.folder / "cache")}
    ran = tree.run("--tileyard-dynamic=prepare", env=cache)
    outcomes = {e["test"].rpartition("::")[2]: e["outcome"] for e in ran.report["tests"]}
    failed = {name: outcome for name, outcome in outcomes.items() if outcome != "passed"}
    expected = {
        "test_compiles_behind_its_block": "compile_error",
        "test_broken": "runtime_error",
        "test_fails": "mismatch",
    }
    assert failed == expected, ran.text
    found = whys(ran)
    for name, text in {
        "test_loop": "compiled main ahead, up to its first device block",
        "test_partly_found": "compiled main ahead, up to its first device block",
        "test_launches_without_a_block": "compiled main ahead, up to its first launch of a kernel",
        "test_compiles_behind_its_block": "compiled nothing ahead, up to its first device block",
        "test_crashes_ahead": "compiled main ahead, then died of SIGABRT (Aborted), which counts for nothing",
        "test_fails": "compiled nothing ahead, and held no device",
        "test_broken": "compiled nothing ahead, and held no device",
    }.items():
        assert found.pop(name) == text
    assert found == {}
    runs = {name: len((tree.folder / f"{name}.runs").read_text()) for name in ("loop", "block")}
    assert runs == {"loop": 2, "block": 1}
    assert (tree.folder / "found.runs").read_text() == "x"
    assert ran.text.count("printed by it") == 1
    assert "undefined symbol: no_such_function" in ran.text
    assert not list((tree.folder / "home").rglob("ahead/*"))
