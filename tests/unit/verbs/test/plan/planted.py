"""A checkout whose workflows do ten things twice, and five that only look so; its files say which."""

import shutil
from pathlib import Path

from tests.conftest import ROOT

TREE = ROOT / "tests" / "suites" / "planted_workflows"
TESTS = ("unit/test_sum", "unit/test_max", "api/test_call", "c/test_queue", "c/test_load")
COPIED = ("test_add", "test_mul", "test_copy")


def plant(folder: Path) -> Path:
    """A copy of the checkout, with its tests, which no pytest is to find in ours."""
    shutil.copytree(TREE, folder)
    tests = folder / "tests"
    files = {f"{name}.py": f'"""Checks {name}."""\n' for name in TESTS}
    for name in COPIED:
        text = f'"""Checks {name}."""\nINPUTS = [1, 2]\n'
        files[f"sim/{name}.py"] = text
        files[f"npu/{name}.py"] = text if name == "test_copy" else f"{text}TOLERANCE = 1e-3\n"
    for name, text in files.items():
        (tests / name).parent.mkdir(parents=True, exist_ok=True)
        (tests / name).write_text(text, encoding="utf-8")
    return folder
