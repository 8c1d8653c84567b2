"""What functions of compile steps made is kept from run to run, by the content of what it depends on."""

from pathlib import Path

import pytest
from tests.e2e.pytest_tree import Ran, Tree

pytestmark = pytest.mark.slow

BUILDERS = """
    import os, pathlib, subprocess
    from parts import NAME

    HERE = pathlib.Path(__file__).parent

    def build(out, arch):
        with open(HERE / "calls", "a") as calls:
            calls.write(arch)
        source = (HERE / "csrc" / "in" / "a.c").read_text()
        (out / "binary").write_text(f"{NAME} {arch} {source}")
        subprocess.run(["sh", "-c", "true"], check=True)
        return {"binary": str(out / "binary"), "seen": sorted(os.environ)}

    def edits_its_input(out):
        (HERE / "edited.txt").write_text(str(out))

    def names_nothing(out): pass

    def starts_others(out): subprocess.run(["true"], check=True)
"""
TESTS = """
    import pathlib, pytest
    from builders import build, edits_its_input, names_nothing, starts_others

    DECLARED = {"inputs": ["csrc/**"], "runs": ["sh"], "env": ["MODE"]}

    @pytest.mark.tile_compile(function=build, **DECLARED)
    @pytest.mark.parametrize("arch", ["m1", "m2"])
    def test_marked(arch, tile_built):
        text = pathlib.Path(tile_built.result["binary"]).read_text()
        assert text == f"one {arch} " + pathlib.Path("csrc/in/a.c").read_text()
        assert "MODE" in tile_built.result["seen"]
        assert "SECRET" not in tile_built.result["seen"]

    @pytest.mark.tile_compile(function=edits_its_input, inputs=["*.txt"], runs=[])
    def test_edited(tile_built): pass

    @pytest.mark.tile_compile(function=names_nothing)
    def test_undeclared(tile_built): pass

    @pytest.mark.tile_compile(function=starts_others, inputs=["csrc/**"])
    def test_doubtful(tile_built): pass

    def test_of_hook(tile_builds):
        assert list(tile_builds) == ["h"]

    def test_misspelt(): pass
"""
HOOK = """
    from builders import build

    def pytest_tileyard_compile_steps(item):
        if item.name == "test_of_hook":
            yield "h", build, {"arch": "h"}, {"inputs": ["csrc/**"], "runs": ["sh"]}
        elif item.name == "test_misspelt":
            yield "x", build, {"arch": "x"}, {"input": ["csrc/**"]}
"""
ENV = {"MODE": "sim", "SECRET": "1"}


def whys(ran: Ran, prefix: str) -> list[str]:
    """Why steps were made, or that they were kept; of those whose function or key begins like this."""
    steps = ran.report["steps"]
    return [s["why"] for s in steps if s["step"].rpartition(":")[2].startswith(prefix)]


def calls(tree: Tree) -> list[str]:
    """For what the function was called since this was last asked, sorted."""
    file = tree.folder / "calls"
    found = sorted(file.read_text().replace("m", " m").replace("h", " h").split())
    file.write_text("")
    return found


def damage(folder: Path) -> None:
    """Write into everything that is kept."""
    for file in folder.glob("*/content/out/binary"):
        file.chmod(0o644)
        file.write_text("damaged")
        file.chmod(0o444)


def test_what_a_function_made_is_kept_and_made_again_where_it_may_differ(tree: Tree) -> None:
    """Of steps that declare what they depend on; the report says why each one was made."""
    tree.write(builders=BUILDERS, test_flow=TESTS, conftest=HOOK, parts="NAME = 'one'")
    source = tree.folder / "csrc" / "in" / "a.c"
    source.parent.mkdir(parents=True)
    source.write_text("int a;")
    (tree.folder / "edited.txt").touch()
    first = tree.run(env=ENV)
    assert calls(tree) == ["h", "m1", "m2"]
    assert whys(first, "build") == ["built: it was not kept before"] * 2, first.text
    assert whys(first, "edits") == [
        "built: it was not kept before; not kept: what it depends on changed while it was made"
    ]
    assert whys(first, "names_nothing") == [
        "built: the step declares no inputs, so it is not cached"
    ]
    assert "can start other programs (subprocess)" in whys(first, "starts_others")[0]
    assert first.outcome("test_of_hook") == "passed", first.text
    assert "declares 'input' for 'x', not one of inputs, runs, env" in first.text
    assert "did you mean 'inputs'?" in first.text

    second = tree.run(env={**ENV, "SECRET": "2"})
    assert (calls(tree), whys(second, "build"), whys(second, "h")) == ([], ["kept"] * 2, ["kept"])
    assert second.outcome("test_marked[m1]") == "passed", second.text

    source.write_text("int b;")
    third = tree.run(env=ENV)
    assert calls(tree) == ["h", "m1", "m2"]
    assert whys(third, "build") == ["built: changed: inputs csrc/**"] * 2
    assert third.outcome("test_marked[m1]") == "passed", third.text

    damage(tree.folder / "home" / "kept")
    fourth = tree.run("-k", "marked", env={**ENV, "MODE": "npu"})
    assert whys(fourth, "build") == ["built: changed: variable MODE"] * 2
    fifth = tree.run("-k", "marked", env=ENV)
    assert calls(tree) == ["m1", "m1", "m2", "m2"]
    assert fifth.outcome("test_marked[m1]") == "passed", fifth.text
