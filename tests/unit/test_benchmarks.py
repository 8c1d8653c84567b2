"""Benchmarks run by hand only, so what they import is checked here."""

import ast
import importlib
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parents[2].glob("benchmarks/*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_names_from_tileyard_exist(file: Path) -> None:
    """A name that has moved fails here, not at the next measurement."""
    imports = [
        node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)
    ]
    for node in imports:
        if node.module is not None and node.module.partition(".")[0] == "tileyard":
            module = importlib.import_module(node.module)
            missing = [one.name for one in node.names if not hasattr(module, one.name)]
            for name in missing:
                importlib.import_module(f"{node.module}.{name}")
