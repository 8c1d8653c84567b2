"""What a result depends on: its key, and what is said to have changed."""

from tileyard.artifacts.footprint import (
    KIND,
    Footprint,
    describe_changes,
    find_footprint,
    keep_by_key,
)
from tileyard.artifacts.objects import ObjectStore


def rest_on(objects: ObjectStore, program: str, level: str, **parts: str) -> Footprint:
    """What a case with two steps rests on, one of which uses a program."""
    case = Footprint(parts=dict(parts))
    case.parts["run uses"] = keep_by_key(
        Footprint(parts={"program tool": program, "library c": "1"}), "uses", objects
    )
    for step in ("golden", "run", "hot check"):
        case.put_variables({"LEVEL": level}, f"{step} ")
    return case


def test_what_changed_is_named_once(objects: ObjectStore) -> None:
    """A step's part is named with its step, and a variable of several steps with all of them."""
    before = rest_on(objects, "a", "1", outputs="x", devices="d")
    now = rest_on(objects, "b", "2", outputs="y", devices="d")
    expected = [
        "outputs",
        "run step: program tool",
        "variable LEVEL of the golden, run and hot check steps",
    ]
    assert describe_changes(before, now, objects) == expected
    assert describe_changes(before, before, objects) == []


def test_a_part_whose_content_is_not_known_any_more_is_named(objects: ObjectStore) -> None:
    """What a step used is named as a whole if one of its footprints is gone, or of another version."""
    before, now = rest_on(objects, "a", "1"), rest_on(objects, "b", "1")
    expected = ["run uses"]
    objects.put_record(KIND, before.parts["run uses"], b'{"parts": []}')
    assert find_footprint(before.parts["run uses"], objects) is None
    assert describe_changes(before, now, objects) == expected


def test_all_parts_and_doubts_decide_the_key() -> None:
    """Another digest, or another doubt, is another key; equal doubts count once."""
    one = Footprint(parts={"a": "1"})
    keys = {one.key("case"), one.key("run")}
    for name, digest in (("a", "1"), ("a", "2"), ("b", "")):
        other = Footprint(parts={"a": "1"})
        other.put(name, digest)
        keys.add(other.key("case"))
    one.doubt("unknown", "unknown")
    one.doubt("unknown")
    keys.add(one.key("case"))
    expected = 5
    assert (len(keys), one.doubts) == (expected, ["unknown"])
