"""Refuses modules past 500 lines, and past 300 lines without a reason in the docstring."""

import ast
import sys
from pathlib import Path

LIMIT = 500
REASON_LIMIT = 300


def complaints(root: Path) -> list[str]:
    """One line per module that is too long."""
    found = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        length = text.count("\n")
        docstring = ast.get_docstring(ast.parse(text)) or ""
        if length > LIMIT:
            found.append(f"{path}: {length} lines, more than {LIMIT}")
        elif length > REASON_LIMIT and "One module because" not in docstring:
            found.append(
                f"{path}: {length} lines; split it by meaning, or say in the docstring "
                f"'One module because ...'"
            )
    return found


if __name__ == "__main__":
    lines = complaints(Path("src/tileyard"))
    print("\n".join(lines) or "modules: all within their limits")
    sys.exit(1 if lines else 0)
