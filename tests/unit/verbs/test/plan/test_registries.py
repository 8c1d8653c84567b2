"""Cases that others have registered: the page's recipe, a suite's Python, and unknown keys."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT

from tileyard.base.errors import UsageError
from tileyard.base.model import CommandWork
from tileyard.base.settings import Settings
from tileyard.verbs.test.plan.reading import read_suite
from tileyard.verbs.test.result.result import SuiteCase

PAGE = ROOT / "docs" / "how-to" / "bring-a-suite.md"
REGISTRY = """
class float32: pass
CASES = [
    dict({f"own_{n}": float32 for n in range(120)}, name="f32_16x64", dtype=float32, shape=(16, 64),
         valid_shape=(16, 60), eps=1e-6, seed=None),
    {"name": "packed", "dtype": None, "src_dtype": float32, "limits": "none"},
    {"name": "text", "dtype": "bfloat16", "shape": (8,)},
]
"""


def write(folder: Path, text: str) -> Path:
    """A suite file."""
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return path


def run_of(case: SuiteCase) -> tuple[str, ...]:
    """The arguments of a case's run step."""
    assert isinstance(case.work, CommandWork)
    return case.work.run.argv


def test_the_recipe_of_the_page_lists_a_registry_with_keys_and_types_of_its_own(
    tmp_path: Path, settings: Settings
) -> None:
    """What Tileyard needs of a case is printed, whatever else its registry says of it."""
    found = re.search(r"```toml\n(list = .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    registry = tmp_path / "testcase" / "tadd" / "cases.py"
    registry.parent.mkdir(parents=True)
    registry.write_text(REGISTRY, encoding="utf-8")
    path = write(tmp_path, f'name = "st"\n{found[1]}\nrun = ["sh", "-c", "true"]\n')
    cases = [(c.id, c.dtype, c.shape) for c in read_suite(path, settings).cases]
    expected = [
        ("tadd/f32_16x64", "float32", (16, 64)),
        ("tadd/packed", "", ()),
        ("tadd/text", "bfloat16", (8,)),
    ]
    assert cases == expected


PYTHON = """
name = "s"
python = {python!r}
list = ["{{python}}", "-c", "print('{{{{\\"name\\": \\"a\\"}}}}')"]
run = ["{{python}}", "run.py"]
"""


@pytest.mark.parametrize("is_relative", [True, False])
def test_a_suite_names_the_python_of_its_steps(
    tmp_path: Path, settings: Settings, is_relative: bool
) -> None:
    """Lists and steps get the interpreter of the file; a path is relative to it, and a link stays one."""
    link = tmp_path / "env" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(Path(os.path.realpath(sys.executable)))
    named = "env/bin/python" if is_relative else str(link)
    suite = read_suite(write(tmp_path, PYTHON.format(python=named)), settings)
    assert run_of(suite.cases[0]) == (str(link), "run.py")


def test_a_python_on_the_path_is_called_by_its_name(tmp_path: Path, settings: Settings) -> None:
    """As any other program."""
    assert shutil.which("python3")
    suite = read_suite(write(tmp_path, PYTHON.format(python="python3")), settings)
    assert run_of(suite.cases[0]) == ("python3", "run.py")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('python = "python0"', "suite.toml:2: python: there is no program 'python0', neither on"),
        ('python = "{tool}/python"', "suite.toml:2: python: {tool} is not defined here; known"),
        ('pyhton = "python3"', "suite.toml:2: pyhton: unknown key (did you mean 'python'"),
        ("limits = { run = 3 }", "suite.toml:2: limits.run: unknown key (did you mean 'run_s'"),
        (
            'dtyp = "f16"\nzzz = 1\nenvs = 2',
            "suite.toml:2: dtyp: unknown key, and so are zzz, envs (did you mean 'dtype' for 'dtyp', "
            "'env' for 'envs'",
        ),
        (
            "\n".join(f"zz{n} = 1" for n in range(10)),
            "suite.toml:2: zz0: unknown key, and so are zz1, zz2, zz3, zz4, zz5, zz6, zz7 and 2 more "
            "(known are family,",
        ),
    ],
)
def test_what_is_not_known_is_named_with_what_is_near(
    tmp_path: Path, settings: Settings, line: str, expected: str
) -> None:
    """All unknown keys of a table at once, also of a table in it, and a Python that is not there."""
    path = write(tmp_path, f'name = "s"\n{line}\nrun = ["sh", "-c", "true"]\n')
    with pytest.raises(UsageError) as refused:
        read_suite(path, settings)
    assert str(refused.value).replace(f"{tmp_path}/", "").startswith(expected)
