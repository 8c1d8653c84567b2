"""Refuses modules of more than 900 lines: a module is one subject, of up to about 600."""

import sys
from pathlib import Path

LIMIT = 900


def complaints(root: Path) -> list[str]:
    """One line per module that is too long."""
    lengths = {
        path: path.read_text(encoding="utf-8").count("\n") for path in sorted(root.rglob("*.py"))
    }
    return [
        f"{path}: {length} lines, more than {LIMIT}"
        for path, length in lengths.items()
        if length > LIMIT
    ]


if __name__ == "__main__":
    lines = complaints(Path("src/tileyard"))
    print("\n".join(lines) or "modules: all within their limit")
    sys.exit(1 if lines else 0)
