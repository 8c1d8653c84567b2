"""Draws a picture of README or a guide from real results: ``tools/picture.py tune``, or another of them.

They are a part of the run's report, as Chromium shows it. ``regress`` compares two revisions of
examples/layers.py, the second one with ``EDITS``, in a repository that it makes. ``--keep FOLDER`` makes it
there, for a look at what each edit became. ``check`` looks at a pipeline with a wait that ends too early.
"""

import argparse
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image
from selenium.webdriver.common.by import By
from tools.chromium import open_chromium, resize

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


WIDTH: Final = 1000
"""Pixels of the page; the picture has twice as many."""
COLOURS: Final = 64


def draw(page: Path, part: str, file: Path) -> None:
    """Write the part of a report that a CSS selector names first as a PNG."""
    with tempfile.TemporaryDirectory() as profile, open_chromium(Path(profile)) as driver:
        resize(driver, WIDTH, 2000, 2)
        driver.get(page.resolve().as_uri())
        drawn = driver.find_element(By.CSS_SELECTOR, part).screenshot_as_png
    Image.open(io.BytesIO(drawn)).convert("RGB").quantize(COLOURS).save(file, optimize=True)


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


def run(command: list[str], folder: Path) -> None:
    """Run ``tileyard``; its exit status says how the comparison ended, and is not one of ours."""
    subprocess.run([sys.executable, "-P", "-m", "tileyard", *command], cwd=folder, check=False)


def main() -> None:
    """Draw the picture that is asked for into docs/figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", choices=("tune", "regress", "suite", "check"))
    parser.add_argument("--keep", metavar="FOLDER", type=Path, default=None)
    asked = parser.parse_args()
    file = ROOT / "docs" / "figures" / f"{asked.picture}.png"
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        if asked.picture == "tune":
            run(["demo"], ROOT)
            run(["report", "-o", str(page)], ROOT)
            draw(page, "#s0-finals", file)
            return
        if asked.picture == "suite":
            run(["test", "examples/suites/reduce_sim/faulty.toml", "--report", str(page)], ROOT)
            draw(page, "#s0-timeline", file)
            return
        if asked.picture == "check":
            source = (ROOT / "examples" / "pipelines.py").read_text(encoding="utf-8")
            wrong = (asked.keep or Path(scratch)) / "pipelines.py"
            wrong.write_text(source.replace("wait_group(2)", "wait_group(3)"), encoding="utf-8")
            run(["check", "pipelines.py::gemm", "--report", str(page)], wrong.parent)
            draw(page, "#s0-mistakes .failure", file)
            return
        folder = asked.keep or Path(scratch) / "project"
        make_project(folder)
        run(["regress", "HEAD~1", "HEAD", "layers.py", "--report", str(page)], folder)
        draw(page, "#s0-intervals", file)


if __name__ == "__main__":
    main()
