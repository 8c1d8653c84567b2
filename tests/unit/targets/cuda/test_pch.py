"""Sources cut into what is precompiled and what is not, and where images of headers lie."""

import subprocess
import sys
from pathlib import Path

import pytest

from tileyard.targets.cuda.nvrtc import find_image, is_unfit, making, split_source


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#include <a.h>\n#define X 1\n\nint f();\n", 3),
        ("int f();\n#include <a.h>\n", 0),
        ("#ifdef A\n  #include <a.h>\n#endif\nextern int x;", 3),
        ("", 0),
    ],
)
def test_the_preprocessors_lines_come_first(source: str, expected: int) -> None:
    """Headers are the first lines that are the preprocessor's or empty; together it is the source."""
    headers, body = split_source(source)
    assert headers.count("\n") == expected
    assert headers + body == source


def test_images_differ_with_all_that_they_are_made_from() -> None:
    """Other headers, flags or compilers have an image of their own."""
    made = [
        find_image(Path("caches"), headers, flags)
        for headers, flags in (("a", ("x", "y")), ("b", ("x", "y")), ("a", ("x",)), ("a", ("xy",)))
    ]
    expected = len(made)
    assert len(set(made)) == expected
    assert find_image(Path("caches"), "a", ("x", "y")) == made[0]


def test_an_image_stands_when_it_is_complete(tmp_path: Path) -> None:
    """Who comes second finds it; one that was not finished leaves nothing behind."""
    image = find_image(tmp_path, "a", ())
    with pytest.raises(RuntimeError):
        _break_off(image)
    expected: list[Path] = []
    assert list(image.parent.iterdir()) == expected
    with making(image) as draft:
        assert draft is not None
        draft.write_text("whole")
        assert not image.exists()
    with making(image) as draft:
        assert draft is None
    assert image.read_text() == "whole"


def _break_off(image: Path) -> None:
    with making(image) as draft:
        assert draft is not None
        draft.write_text("half")
        raise RuntimeError


def test_processes_that_are_laid_out_otherwise_share_no_image(tmp_path: Path) -> None:
    """Where addresses are random there is no layout; where they are fixed it is a library's address."""
    maps = tmp_path / "maps"
    maps.write_text("7fff00000000-7fff00001000 r--p 0 0:0 1 /x/libnvrtc.so.13\n")
    program = (
        "import sys; from pathlib import Path; from tileyard.targets.cuda.nvrtc import find_layout;"
        "print(find_layout('libnvrtc.so', Path(sys.argv[1])))"
    )
    line = [sys.executable, "-c", program, str(maps)]
    expected = ["7fff00000000", ""]
    found = [
        subprocess.run([*prefix, *line], capture_output=True, text=True, check=True).stdout.strip()
        for prefix in (["setarch", "-R"], [])
    ]
    assert found == expected


def test_an_image_that_does_not_fit_is_told_by_the_compiler() -> None:
    """NVRTC goes on without it, and says so in a warning."""
    expected = (
        "Warning #20282-D: incompatible precompiled header (PCH) heap allocation address from"
    )
    assert is_unfit(expected)
    assert not is_unfit('"kernel.cu": using precompiled header file "headers.pch"')
