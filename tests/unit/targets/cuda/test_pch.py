"""Sources cut into what is precompiled and what is not, and where images of headers lie."""

from pathlib import Path

import pytest

from tileyard.targets.cuda.pch import find_image, making, split_source


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
