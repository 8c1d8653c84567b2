"""What is imported where: the engine and the command line stay light."""

import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "tilelang", "tvm", "scipy", "sqlalchemy", "numpy"),
    *(
        "IPython",
        "matplotlib",
        "optuna",
        "pandas",
        "ray",
        "cryptography",
    ),  # which an installation need not have
)


def loaded_by(code: str) -> set[str]:
    """The heavy packages that a statement loads in a fresh process."""
    probe = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_the_command_line_loads_nothing_heavy() -> None:
    """``tileyard --help`` needs neither NumPy nor SQL nor any kernel language."""
    expected: set[str] = set()
    assert loaded_by("import tileyard.cli.main") == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    ["verbs.tune.command.session", "verbs.test.command.session", "workers.step_host"],
)
def test_what_every_run_starts_loads_nothing_heavy(module: str) -> None:
    """One that shows what happens, and one that runs programs, start often."""
    expected: set[str] = set()
    assert loaded_by(f"import tileyard.{module}") == expected


@pytest.mark.slow
def test_the_engine_process_loads_no_kernel_language() -> None:
    """The engine never imports TileLang or torch."""
    expected: set[str] = set()
    assert loaded_by("import tileyard.service.process") & {"torch", "tilelang", "tvm"} == expected


@pytest.mark.slow
def test_a_declaring_file_loads_nothing_heavy() -> None:
    """``import tileyard`` and its decorator are cheap for a kernel file."""
    expected: set[str] = set()
    assert loaded_by("import tileyard; tileyard.kernel") == expected


@pytest.mark.slow
def test_what_targets_need_is_known_without_them() -> None:
    """The command line asks for it each time it starts."""
    expected: set[str] = set()
    code = "from tileyard.targets.registry import find_needs, list_texts; list_texts(); find_needs('cuda')"
    assert loaded_by(code) == expected


@pytest.mark.slow
def test_an_author_loads_what_it_is_asked_for() -> None:
    """Checks, passes and the search for failures are for questions that few files get."""
    rooms = ("tileyard.sync.blocks", "tileyard.passes", "tileyard.reduce")
    probe = f"import sys, tileyard.workers.author; print(*[r for r in {rooms} if r in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
