"""``tileyard look``: one block of a kernel as a page that leads to the statement that is wrong."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import KERNELS, CommandLine
from tests.own_authors import OwnCommandLine

pytestmark = pytest.mark.slow

EXAMPLES = KERNELS.parent.parent / "examples"
SOURCE = (KERNELS / "planted.py").read_text(encoding="utf-8")
PIPELINES = (EXAMPLES / "pipelines.py").read_text(encoding="utf-8")
MOST_BYTES = 5_000_000
PLANTED = {
    "product": (("M=256", "N=256", "K=128"), "T.copy(B[k * depth, by * block], b)"),
    "softmax": (("M=16", "N=128"), "x[i, j] = x[i, j] / most[i]"),
    "attention": (
        ("length=256", "dim=64"),
        "shrink[i] = T.exp2((before[i] - most[i]) * 0.25)",
    ),
}
"""Sizes of the kernels, and the wrong statement of each: the tile of the block's row and not of its column,
the largest element and not the sum, another scale than that of the weights.
"""
LATE = "\n\ndef plain(A, B):\n    return A.astype('float32') @ B.astype('float32')\n"
LONG = ("--limit", "10m")  # what is found does not depend on what else the machine does


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> OwnCommandLine:
    """A folder with kernels, most of which are wrong."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "planted.py").write_text(SOURCE, encoding="utf-8")
    early = PIPELINES.replace("ptx_wait_group(2)", "ptx_wait_group(3)")
    (folder / "pipelines.py").write_text(early + LATE, encoding="utf-8")
    (folder / "gemm.py").write_text(
        (EXAMPLES / "gemm.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    return OwnCommandLine(folder)


def arguments(values: tuple[str, ...]) -> list[str]:
    """The options for these sizes."""
    return [part for value in values for part in ("--arg", value)]


def line_of(source: str, statement: str) -> int:
    """The line of the only statement with this text."""
    (line,) = [at for at, text in enumerate(source.splitlines(), 1) if statement in text]
    return line


def data_of(page: Path) -> dict[str, Any]:
    """What a page's script works on."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.mark.parametrize("kernel", PLANTED)
def test_the_page_leads_to_the_wrong_statement(cli: CommandLine, kernel: str) -> None:
    """The answer, the first suspect and the page name the planted line; the page is not large."""
    sizes, statement = PLANTED[kernel]
    done = cli.run("look", f"planted.py::{kernel}", *arguments(sizes), *LONG)
    line = line_of(SOURCE, statement)
    assert done.returncode == 1
    assert f"line {line} is where a small change makes all results right" in done.stdout
    page = cli.cwd / f"{kernel}.html"
    assert page.stat().st_size < MOST_BYTES
    assert data_of(page)["suspects"][0] == line
    assert f"<strong>Line {line}</strong>" in page.read_text(encoding="utf-8")


def test_a_number_that_is_missing_is_named_by_the_sizes(cli: CommandLine) -> None:
    """A sum in the place of a mean: by how much it is off, where the factor may be, and what was tried. Of
    two names that a number has with equal sizes, other sizes tell which is right.
    """
    done = cli.run("look", "planted.py::mean", *arguments(("M=256", "N=256")), *LONG)
    line = line_of(SOURCE, "T.reduce_sum(x, y, dim=1)")
    assert done.returncode == 1
    assert (
        "The reference is 1/256 of the kernel's value everywhere (checked in all 256 elements); 256 is M "
        "and N." in done.stdout
    )
    assert (
        f"planted.py:{line}: with `y[i] = y[i] * 0.015625, after this statement` all results are right "
        "(tried at M=64, N=64); 0.015625 equals 1/N, and not 1/M (tried at M=64, N=128); at the kernel's own "
        "sizes with `y[i] = y[i] * 0.00390625, after this statement`\n" in done.stdout
    )
    page = (cli.cwd / "mean.html").read_text(encoding="utf-8")
    assert "To save time, changes were tried on a smaller kernel, with M=64, N=64." in page
    columns = re.findall(r'<th scope="col">(Value [a-z]+|Difference)<', page)
    assert columns[:3] == ["Value before", "Value after", "Difference"]


def test_a_wait_that_ends_too_early_is_named_first(cli: CommandLine) -> None:
    """What the check of synchronization finds explains the element: it is right in the order of the text."""
    sizes = arguments(("M=32", "N=32", "K=64"))
    done = cli.run("look", "pipelines.py::gemm", *sizes, "--reference", "plain", "--json", *LONG)
    verdict = json.loads(done.stdout)["verdict"]
    wait = line_of((cli.cwd / "pipelines.py").read_text(encoding="utf-8"), "ptx_wait_group(3)")
    assert done.returncode == 1
    assert verdict["suspects"][0]["line"] == wait
    assert "T.ptx_wait_group(2) would cover it" in verdict["sentence"]


def test_a_right_kernel_has_a_page_as_well(cli: CommandLine) -> None:
    """Of the block that is asked for; as it is planned for a GPU with the layouts that it has there."""
    sizes = arguments(("M=256", "N=256", "K=256"))
    asked = ("--block", "1,0", "--pipeline", "tilelang:sm_90a")
    done = cli.run("look", "gemm.py", *sizes, *asked, "-o", "here.html", *LONG)
    assert done.returncode == 0
    assert done.stdout.startswith("gemm: No element of this block is wrong.\n")
    page = (cli.cwd / "here.html").read_text(encoding="utf-8")
    assert "gemm: block (1, 0) of 4 x 4" in page
    assert "<td>swizzle of 128 bytes, chosen</td>" in page
    assert "<td>read by a product</td>" in page
    assert "Bank conflicts of B_tile are not shown, because" in page


def test_what_cannot_be_looked_at_is_bad_usage(cli: CommandLine) -> None:
    """One line that says why."""
    sizes = arguments(("M=256", "N=256", "K=256"))
    for options, words in (
        (("--block", "5,0"), "there is no block 5,0: the grid is 4 x 4, blockIdx.x first"),
        (("--block", "a"), "--block a: whole numbers, blockIdx.x first, as --block 3,0"),
        (("--config", "block_M=64,128"), "look takes one config"),
        (("-o", "no/folder.html"), "no/folder.html: No such file or directory"),
    ):
        done = cli.run("look", "gemm.py", *sizes, *options)
        assert done.returncode == 2
        assert words in done.stderr
