"""The files that a step's result depends on."""

from pathlib import Path

import pytest

from tileyard.artifacts.digests import find_files


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("src", ["src/a.c", "src/in/b.c"]),
        ("src/*", ["src/a.c"]),
        ("src/**", ["src/a.c", "src/in/b.c"]),
        ("**", ["src/a.c", "src/in/b.c"]),
        ("src/**/*.h", []),
    ],
)
def test_patterns_name_files(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    """A folder and ``**`` stand for all files at any depth."""
    for name in ("src/a.c", "src/in/b.c", "src/.git/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {str(path.relative_to(tmp_path)) for path in find_files(tmp_path, pattern)}
    assert sorted(found) == expected
