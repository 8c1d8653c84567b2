"""Draws the README's pictures from real results: ``.venv/bin/python tools/picture.py tune`` or ``regress``.

``regress`` compares two revisions of examples/layers.py, the second one with ``EDITS``, in a repository that
it makes. ``--keep FOLDER`` makes it there, for a look at what each edit became.
"""

import argparse
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from tileyard.verbs.regress.result import Regression
from tileyard.verbs.regress.view.regress import print_regression
from tileyard.verbs.tune.result.records import StudyResult
from tileyard.verbs.tune.view.study import print_study

ROOT: Final = Path(__file__).resolve().parents[1]
EDITS: Final = {
    "def squared_relu(M=ROWS, N=COLUMNS, block=16)": "def squared_relu(M=ROWS, N=COLUMNS, block=32)",
    "= a / (1.0 + T.exp(-a)) * B": "= a * T.sigmoid(a) * B",
    "block_M=128, block_N=128, block_K=64": "block_M=128, block_N=64, block_K=32",
    "def transpose(M=ROWS, N=COLUMNS, block=32)": "def transpose(M=ROWS, N=COLUMNS, block=8)",
    "def running_sums(M=ROWS, N=COLUMNS, block=8)": "def running_sums(M=ROWS, N=COLUMNS, block=16)",
}
"""What the second revision has instead: smaller tiles, larger blocks, a sigmoid called by its name."""
DAY: Final = "2026-11-23T12:00:00Z"
"""The commits have the same names each time."""


def draw(title: str, show: Callable[[Console], None], file: Path) -> None:
    """Write what a command prints at its end as an SVG."""
    console = Console(record=True, file=io.StringIO(), width=112)
    show(console)
    svg = console.export_svg(title=title)
    file.parent.mkdir(parents=True, exist_ok=True)
    # The viewer's own monospace font: a picture fetches nothing.
    file.write_text(re.sub(r"@font-face\s*{[^}]*}", "", svg), encoding="utf-8")


def edit(source: str) -> str:
    """The second revision. Raises ValueError where the first one has something else."""
    for old, new in EDITS.items():
        if source.count(old) != 1:
            raise ValueError(f"examples/layers.py does not have this once: {old}")
        source = source.replace(old, new)
    return source


def make_project(folder: Path) -> None:
    """A repository with two commits of layers.py."""
    source = (ROOT / "examples" / "layers.py").read_text(encoding="utf-8")
    identity = ["-c", "user.name=Tileyard", "-c", "user.email=tileyard@example.com"]
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    for message, text in (("Ten kernels", source), ("Other tiles", edit(source))):
        (folder / "layers.py").write_text(text, encoding="utf-8")
        commit = ["commit", "--quiet", "--no-gpg-sign", "--message", message]
        variables = ["env", f"GIT_AUTHOR_DATE={DAY}", f"GIT_COMMITTER_DATE={DAY}"]
        git = [*variables, "git", "-C", str(folder), *identity]
        subprocess.run([*git, "add", "layers.py"], check=True)
        subprocess.run([*git, *commit], check=True)


def run(command: list[str], folder: Path) -> bytes:
    """The JSON of ``tileyard``; its exit status says how the comparison ended, and is not one of ours."""
    whole = [sys.executable, "-P", "-m", "tileyard", *command, "--json"]
    return subprocess.run(whole, cwd=folder, stdout=subprocess.PIPE, check=False).stdout


def draw_tune(file: Path) -> None:
    """What ``make demo`` prints."""
    command = ["demo"]
    result = msgspec.json.decode(run(command, ROOT), type=StudyResult)
    draw(
        f"tileyard {' '.join(command)}",
        lambda console: print_study(console, result, Path(".tileyard")),
        file,
    )


def draw_regress(file: Path, folder: Path) -> None:
    """Two revisions of ten kernels."""
    make_project(folder)
    command = ["regress", "HEAD~1", "HEAD", "layers.py"]
    result = msgspec.json.decode(run(command, folder), type=Regression)
    draw(f"tileyard {' '.join(command)}", lambda console: print_regression(console, result), file)


def main() -> None:
    """Draw the picture that is asked for into docs/figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", choices=("tune", "regress"))
    parser.add_argument("--keep", metavar="FOLDER", type=Path, default=None)
    asked = parser.parse_args()
    file = ROOT / "docs" / "figures" / f"{asked.picture}.svg"
    if asked.picture == "tune":
        draw_tune(file)
        return
    with tempfile.TemporaryDirectory() as scratch:
        draw_regress(file, asked.keep or Path(scratch))


if __name__ == "__main__":
    main()
