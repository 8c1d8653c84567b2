"""The reference of suite files against the code."""

import re
import tomllib
from pathlib import Path

import pytest

from tileyard.base.model import Record
from tileyard.base.quarantine import Quarantine
from tileyard.base.settings import read_settings
from tileyard.verbs.test.plan.files import tables
from tileyard.verbs.test.plan.files.drafts import TAKEN
from tileyard.verbs.test.plan.files.steps import PLACES_OF
from tileyard.verbs.test.plan.reading import read_suite
from tileyard.verbs.test.result.result import PolicyTable, Rule

PAGE = Path(__file__).parents[5] / "docs" / "reference" / "suites.md"


@pytest.fixture(scope="module")
def page() -> str:
    """The page's text."""
    return PAGE.read_text(encoding="utf-8")


def test_the_complete_example_is_a_suite(page: str, tmp_path: Path) -> None:
    """What the page shows can be read as it stands, once the programs that it names are there."""
    (found,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "suite.toml").write_text(found, encoding="utf-8")
    build = tmp_path / "build.sh"
    build.write_text("#!/bin/sh\n", encoding="utf-8")
    build.chmod(0o755)
    (tmp_path / "src").mkdir()
    for name in ("gemm.py", "golden.py", "check_sorted.py", "CMakeLists.txt", "src/a.cpp"):
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / "sort_cases.py").write_text('print(\'{"name": "up"}\')', encoding="utf-8")
    suite = read_suite(tmp_path / "suite.toml", read_settings({}, tmp_path))
    expected = ["rowsum/f32_64x128", "rowsum/f16_64x4096", "sort/up", "gemm/small", "gemm/wide"]
    assert [case.id for case in suite.cases] == expected
    assert set(suite.policies) == {"change", "light", "nightly"}
    assert tomllib.loads(found)["name"] == suite.name


@pytest.mark.parametrize(
    "table",
    [
        tables.SuiteTable,
        tables.TestcaseTable,
        tables.ListedCaseTable,
        tables.StepTable,
        tables.BuildTable,
        tables.HotTable,
        tables.OutputTable,
        tables.MeasureTable,
        tables.LimitsTable,
        PolicyTable,
        Rule,
        Quarantine,
    ],
)
def test_every_key_is_told_of(page: str, table: type[Record]) -> None:
    """No key of a table is missing from the page."""
    words = set(re.findall(r"\w+", page))
    missing = [key for key in table.__struct_fields__ if key not in words]
    expected: list[str] = []
    assert missing == expected


def test_every_name_in_braces_is_told_of(page: str) -> None:
    """The page names all that templates know, and what each step is told."""
    told = set(re.findall(r"\{(\w+)\}", page))
    assert set(TAKEN) <= told
    for step in ("build", "golden", "run", "check"):
        row = next(line for line in page.split("\n") if line.startswith(f"| `{step}` |"))
        expected = PLACES_OF[step]
        assert set(re.findall(r"\{(\w+)\}", row)) == expected
