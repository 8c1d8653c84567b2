"""The shapes that a kernel is to be tuned for, from a file or from Python."""

from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.tune.options import Shapes, TuneOptions, read_shapes, start_table, start_tune

LISTED = """
[[shape]]
M = 64
N = [512, 1024]
weight = 3

[[shape]]
M = 4
N = 2048
dtype = "float16"
"""


def test_a_list_stands_for_each_of_its_values(tmp_path: Path) -> None:
    """A set of arguments with lists is as many shapes as they have combinations, each with its weight."""
    path = tmp_path / "shapes.toml"
    path.write_text(LISTED)
    found = [(shape.arguments, shape.weight) for shape in read_shapes(path)]
    assert found == [
        ({"M": 64, "N": 512}, 3.0),
        ({"M": 64, "N": 1024}, 3.0),
        ({"M": 4, "N": 2048, "dtype": "float16"}, 1.0),
    ]


def test_python_gives_the_same_as_values() -> None:
    """A list, or a mapping of names."""
    (listed,) = read_shapes([{"M": 4, "weight": 2}])
    (named,) = read_shapes({"decode": {"M": 4, "weight": 2}})
    assert (listed.arguments, listed.weight, listed.name) == ({"M": 4}, 2.0, "")
    assert (named.arguments, named.weight, named.name) == ({"M": 4}, 2.0, "decode")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ":1: there is no shape ([[shape]] begins each set of arguments)"),
        ("[[shapes]]\nM = 4", ":1: shapes: is not a key of a file of shapes (did you mean shape?)"),
        ("shape = 3", ":1: 3 is not a list of shapes"),
        ("[[shape]]\nM = 4\nN = {a = 1}", ":3: N is {'a': 1}, and no number or text"),
        ("[[shape]]\nM = [[1]]", ":2: M is [1], and no number or text"),
        ("[[shape]]\nM = []", ":2: M is an empty list (leave it out, or give it a value)"),
        ("[[shape]]\nweight = true", ":2: weight is True, and no number above 0"),
        ("[[shape]]\nweight = 0", ":2: weight is 0, and no number above 0"),
        (
            "[shape]\nM = 4",
            ":2: M: 4 is not a table ([[shape]] begins each set of arguments, [shape.NAME] one with a name)",
        ),
    ],
)
def test_what_is_no_shape_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """In one line with file, line and key."""
    path = tmp_path / "shapes.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_shapes(path)
    assert str(refused.value) == f"{path}{expected}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([{"M": {1}}], "shapes[0]['M']: M is {1}, and no number or text"),
        ([{"M": 1}, 3], "shapes[1]: 3 is not a table"),
        ("", "--shapes is empty: it takes a path"),
        (
            [{"M": list(range(101)), "N": list(range(101))}],
            "shapes: there are more than 10000 shapes",
        ),
    ],
)
def test_values_are_refused_likewise(given: Shapes, expected: str) -> None:
    """By their place in the list."""
    with pytest.raises(UsageError) as refused:
        read_shapes(given)
    assert str(refused.value).startswith(expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"within": "3%"}, "--within has no effect without --shapes"),
        ({"shapes": [{"M": 1}], "shape": "x"}, "--shape and --shapes contradict each other"),
        ({"shapes": [{"M": 1}], "arg": {"M": 2}}, "shapes[0]: M is given with --arg, too"),
        (
            {"shapes": [{"M": 1}], "also_build": "cuda:sm_90a"},
            "--also-build has no effect with --shapes",
        ),
        ({"shapes": [{"M": 1}], "within": "0"}, "--within: '0' is not a share"),
    ],
)
def test_options_that_contradict_shapes_are_refused(given: TuneOptions, expected: str) -> None:
    """Before anything is run."""
    with pytest.raises(UsageError) as refused:
        start_table(start_tune("", "", given), given)
    assert str(refused.value).startswith(expected)


def test_a_bound_is_a_size_or_a_number() -> None:
    """By the end of its name, as text and as a plain value."""
    for bound in (["x_bytes=2KiB", "registers=128"], {"x_bytes": 2048, "registers": 128}):
        request = start_tune("", "", {"bound": bound}).request
        assert request.bounds == {"x_bytes": 2048.0, "registers": 128.0}


def cross(given: TuneOptions) -> list[tuple[str, dict[str, object], str]]:
    """What the options make of several sizes: the name, the arguments and the place of each shape."""
    table = start_table(start_tune("", "", given), given)
    assert table is not None
    return [(one.declared, dict(one.arguments), one.where) for one in table.shapes]


@pytest.mark.parametrize("given", [["M=1,2", "K=64"], {"M": [1, 2], "K": 64}])
def test_several_sizes_are_as_many_shapes(given: object) -> None:
    """Numbers of the command line, and lists of Python; the rest is what all shapes have."""
    options: TuneOptions = {"arg": given}  # type: ignore[typeddict-item]  # of both kinds
    assert cross(options) == [("", {"M": 1}, "--arg M=1"), ("", {"M": 2}, "--arg M=2")]
    assert start_tune("", "", options).request.arguments == {"K": 64}


def test_several_named_shapes_are_as_many() -> None:
    """Each with each combination of sizes; one name, or a text with commas, is a plain study's shape."""
    assert cross({"shape": ["small", "large"], "arg": {"M": [1, 2]}}) == [
        ("small", {"M": 1}, "--shape small --arg M=1"),
        ("small", {"M": 2}, "--shape small --arg M=2"),
        ("large", {"M": 1}, "--shape large --arg M=1"),
        ("large", {"M": 2}, "--shape large --arg M=2"),
    ]
    one: TuneOptions = {"shape": "small", "arg": ["layout=a,b"]}
    start = start_tune("", "", one)
    assert (start.request.shape, start.request.arguments) == ("small", {"layout": "a,b"})
    assert start_table(start, one) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"arg": ["M=1,2"], "shapes": [{"N": 4}]},
            "--arg M has several values, and --shapes lists shapes (put them there)",
        ),
        ({"arg": ["M=1,2"], "seeds": 2}, "--seeds has no effect with several shapes"),
        (
            {"arg": ["M=1,2"], "time_reference": True},
            "--time-reference has no effect with several shapes",
        ),
        ({"arg": ["M=1,2"], "pareto": "x"}, "--pareto has no effect with several shapes"),
        (
            {"bound": ["x_bytes=much"]},
            "--bound x_bytes: 'much' is neither a number of at least 0 nor a size such as 96KiB",
        ),
        (
            {"bound": {"registers": -1}},
            "--bound registers: -1 is neither a number of at least 0 nor a size such as 96KiB",
        ),
        (
            {"bound": ["registers=nan"]},
            "--bound registers: nan is neither a number of at least 0 nor a size such as 96KiB",
        ),
        (
            {"bound": ["registers=true"]},
            "--bound registers: True is neither a number of at least 0 nor a size such as 96KiB",
        ),
        ({"bound": ["x"]}, "--bound 'x' is not of the form KEY=VALUE"),
        ({"within": "5%"}, "--within has no effect without --shapes or several sizes"),
        (
            {"arg": {"M": list(range(101)), "N": list(range(101))}},
            "--arg: there are more than 10000 shapes",
        ),
        ({"rtol": "much"}, "--rtol 'much' is not a number of at least 0, such as 1e-3"),
        ({"atol": -1}, "--atol -1 is not a number of at least 0, such as 1e-3"),
        ({"rtol": "1e-3", "check": False}, "--rtol has no effect with --no-check"),
    ],
)
def test_what_contradicts_several_sizes_is_refused(given: TuneOptions, expected: str) -> None:
    """In one line, before a file is imported; and so are tolerances that are none."""
    with pytest.raises(UsageError) as refused:
        start_table(start_tune("", "", given), given)
    assert str(refused.value) == expected
