"""Draws the README's picture from a real result.

``tileyard tune examples/gemm.py --json | python tools/picture.py docs/figures/tune.svg``
"""

import io
import re
import sys
from pathlib import Path

import msgspec
from rich.console import Console

from tileyard.report.study import print_study
from tileyard.tuning.request import StudyResult


def draw(result: StudyResult, file: Path) -> None:
    """Write what ``tileyard tune`` prints at its end as an SVG."""
    console = Console(record=True, file=io.StringIO(), width=112)
    print_study(console, result, Path(".tileyard"))
    svg = console.export_svg(title="tileyard tune examples/gemm.py")
    file.parent.mkdir(parents=True, exist_ok=True)
    # The viewer's own monospace font: a picture fetches nothing.
    file.write_text(re.sub(r"@font-face\s*{[^}]*}", "", svg), encoding="utf-8")


if __name__ == "__main__":
    draw(msgspec.json.decode(sys.stdin.buffer.read(), type=StudyResult), Path(sys.argv[1]))
