"""Benchmarks run by hand only, so what they import is checked here."""

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parents[2].glob("benchmarks/*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_names_from_tileyard_exist(file: Path) -> None:
    """A name that has moved fails here, not at the next measurement."""
    names = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tileyard"
        for alias in node.names
    ]
    missing = [
        f"{module}.{name}"
        for module, name in names
        if not hasattr(importlib.import_module(str(module)), name)
        and find_spec(f"{module}.{name}") is None
    ]
    assert missing == []
