"""``tileyard check`` on whole files, its documents, and comments that allow a finding."""

import json

import jsonschema
import pytest
from tests.conftest import ROOT, CommandLine
from tests.own_authors import OwnCommandLine

pytestmark = pytest.mark.slow

SOURCE = (ROOT / "examples" / "pipelines.py").read_text(encoding="utf-8")
SCHEMA = ROOT / "docs" / "reference" / "check.schema.json"
WRONG = SOURCE.replace("T.ptx_wait_group(2)", "T.ptx_wait_group(3)")
SIZES = ("--arg", "M=48", "--arg", "N=96", "--arg", "K=96")
MULTIPLY = "                T.gemm("
assert WRONG.count(MULTIPLY) == 1


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> OwnCommandLine:
    """A folder in which what was asked about the same file is answered."""
    return OwnCommandLine(tmp_path_factory.mktemp("place"))


@pytest.fixture
def cli(place: OwnCommandLine) -> OwnCommandLine:
    """The folder with the pipelines, one of them wrong."""
    (place.cwd / "pipelines.py").write_text(WRONG, encoding="utf-8")
    return place


def allow(cli: CommandLine, comment: str) -> None:
    """Put a comment above the line at which both mistakes are found."""
    text = WRONG.replace(MULTIPLY, f"                # tileyard: {comment}\n{MULTIPLY}")
    (cli.cwd / "pipelines.py").write_text(text, encoding="utf-8")


def test_all_kernels_of_a_file_are_checked(cli: CommandLine) -> None:
    """Findings first, then a line for each, with those of the arguments that it has."""
    done = cli.run("check", "pipelines.py", *SIZES)
    assert done.returncode == 1
    results = [line for line in done.stdout.splitlines() if " blocks of " in line]
    assert [line.split(" mistake")[0] for line in results] == [
        "gemm: 2",
        "scale: no",
        "permute: no",
    ]
    assert done.stdout.splitlines()[0].startswith(f"{cli.cwd / 'pipelines.py'}:46: ")


def test_a_kernel_that_cannot_be_checked_is_a_line(cli: CommandLine) -> None:
    """And the exit status where nothing is found in the others."""
    text = SOURCE.replace("def gemm(M, N, K):", "def gemm(M, N, K, word):")
    text = text.replace("steps = K // BLOCK", "steps = K // len(word)", 1)
    (cli.cwd / "pipelines.py").write_text(text, encoding="utf-8")
    done = cli.run("check", "pipelines.py", "--arg", "N=96")
    assert (done.returncode, done.stderr) == (2, "")
    assert "scale: no mistakes in " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("not checked: gemm ")
    done = cli.run("check", "pipelines.py", "--arg", "X=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no kernel of " in done.stderr


def test_a_comment_with_a_reason_suppresses(cli: CommandLine) -> None:
    """The finding gates nothing, and is listed with the reason in all forms."""
    allow(cli, "allow(read-before-arrival) known: see the issue")
    done = cli.run("check", "pipelines.py::gemm", *SIZES)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "gemm: no mistakes in 45 of 54 blocks of 10 shapes, 2 suppressed"
    allowed = lines.index("    allowed by line 46: known: see the issue")
    assert lines[allowed - 1].startswith(
        f"suppressed: {cli.cwd / 'pipelines.py'}:47: b is read at k=0"
    )
    found = json.loads(cli.run("check", "pipelines.py::gemm", *SIZES, "--json").stdout)
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    (checked,) = found["kernels"]
    assert [one["reason"] for one in checked["suppressed"]] == ["known: see the issue"] * 2
    assert checked["findings"] == []
    log = json.loads(cli.run("check", "pipelines.py::gemm", *SIZES, "--sarif").stdout)
    results = log["runs"][0]["results"]
    assert [one["suppressions"][0]["kind"] for one in results] == ["inSource"] * 2
    places = [one["locations"][0]["physicalLocation"]["artifactLocation"] for one in results]
    assert [one["uri"] for one in places] == ["pipelines.py"] * 2


def test_a_comment_that_allows_nothing_is_named(cli: CommandLine) -> None:
    """The finding stays."""
    allow(cli, "allow(race) no reason to be here")
    done = cli.run("check", "pipelines.py::gemm", *SIZES)
    assert done.returncode == 1
    line = f"unused: {cli.cwd / 'pipelines.py'}:46: allow(race) suppresses nothing"
    assert done.stdout.splitlines()[-1] == line
    assert "1>" not in done.stdout  # the timelines of the last test


def test_a_comment_that_says_it_wrong_is_bad_usage(cli: CommandLine) -> None:
    """In one line with its place."""
    text = "# tileyard: allow(race)\n"
    line = SOURCE.count("\n", 0, SOURCE.index("def scale(")) + 2
    (cli.cwd / "pipelines.py").write_text(
        SOURCE.replace("def scale(N):\n", f"def scale(N):\n    {text}"), encoding="utf-8"
    )
    done = cli.run("check", "pipelines.py::scale", "--arg", "N=96")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"pipelines.py:{line}: allow(race) has no reason" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_documents_exclude_each_other(cli: CommandLine) -> None:
    """Standard output holds one."""
    done = cli.run("check", "pipelines.py::gemm", *SIZES, "--json", "--sarif")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_timeline_shows_how_it_came_to_a_mistake(cli: CommandLine) -> None:
    """Behind each finding; lines are not wider where they go into a file."""
    done = cli.run("check", "pipelines.py::gemm", *SIZES, "--timeline")
    lines = done.stdout.splitlines()
    drawn = [line.split("|")[0].rstrip() for line in lines]
    assert drawn.count("1> 29 issue cp_async b[0]") == 1
    assert drawn.count("2> 46 read b[0]") == 1
    assert drawn.count("2> 46 read b[2]") == 1
    assert all(len(line) <= 80 for line in lines if " | " in line)
    assert "| 26 a[0] arrives" in done.stdout
