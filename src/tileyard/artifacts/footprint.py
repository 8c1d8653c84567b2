"""What a result depends on: one record that all collectors fill, its key, and what has changed since then."""

import re
from collections.abc import Mapping

import msgspec

from tileyard.artifacts.objects import ObjectStore, canonical_json, digest_parts
from tileyard.base.model import Digest

KIND = "footprint"
"""The kind of record that has a footprint, by its key or by the name of what it belongs to."""
USES = " uses"
"""The end of the name of a part that is the key of another footprint: what the step uses."""
_OF_STEP = re.compile(r"([a-z ]+) (variable .+)")
"""The name of a variable that a step sets."""


class Footprint(msgspec.Struct, kw_only=True):
    """What a result depends on, as far as it is known.

    ``parts`` are digests by name, empty for what does not exist. ``doubts`` are the reasons why they may
    not be all: then nothing is proven, and nothing kept. ``code`` are the files of code among it, if
    somebody needs them.
    """

    parts: dict[str, str] = {}
    doubts: list[str] = []
    code: list[str] = []

    def put(self, name: str, digest: str) -> None:
        """Add a part; all parts with the same name count, in their order."""
        known = self.parts.get(name, digest)
        self.parts[name] = digest if known == digest else digest_parts(known, digest)

    def put_variables(self, values: Mapping[str, str], of: str = "") -> None:
        """Add variables with their values; their names follow ``of``."""
        for name, text in values.items():
            self.put(f"{of}variable {name}", digest_parts(text))

    def doubt(self, *reasons: str) -> None:
        """Add reasons for doubt, each once."""
        self.doubts = list(dict.fromkeys((*self.doubts, *reasons)))

    def add(self, other: "Footprint") -> None:
        """Add everything that another result depends on."""
        for name, digest in other.parts.items():
            self.put(name, digest)
        self.doubt(*other.doubts)
        self.code = list(dict.fromkeys((*self.code, *other.code)))

    def key(self, what: str) -> Digest:
        """The key of something of this kind, ``what``, over all parts and doubts."""
        return digest_parts(what, canonical_json((self.parts, self.doubts)))


def keep_footprint(footprint: Footprint, name: str, objects: ObjectStore) -> None:
    """Store a footprint under a digest. Raises HomeError."""
    objects.put_record(KIND, name, msgspec.json.encode(footprint, order="sorted"))


def keep_by_key(footprint: Footprint, what: str, objects: ObjectStore) -> Digest:
    """Store a footprint under its key, if it is not there, and return the key. Raises HomeError."""
    key = footprint.key(what)
    if not objects.has_record(KIND, key):
        keep_footprint(footprint, key, objects)
    return key


def find_footprint(name: str, objects: ObjectStore) -> Footprint | None:
    """The footprint stored under this digest; None if there is none that can be read."""
    return objects.decode_record(KIND, name, Footprint) if name else None


def describe_changes(before: Footprint, now: Footprint, objects: ObjectStore) -> list[str]:
    """The parts that differ, in words. What steps use is compared part by part, if it is still stored."""
    told: dict[str, list[str]] = {}
    for name in _find_different(before, now):
        inner: list[str] = []
        if name.endswith(USES):
            old, new = (find_footprint(one.parts.get(name, ""), objects) for one in (before, now))
            changed = _find_different(old, new) if old and new else []
            inner = [f"{name.removesuffix(USES)} step: {part}" for part in changed]
        for text in inner or [name]:
            of_step = _OF_STEP.fullmatch(text)
            what, steps = (of_step[2], [of_step[1]]) if of_step else (text, [])
            told.setdefault(what, []).extend(steps)
    return [what + _name_steps(steps) for what, steps in told.items()]


def _find_different(before: Footprint, now: Footprint) -> list[str]:
    names = dict.fromkeys((*before.parts, *now.parts))
    return [name for name in names if before.parts.get(name, "") != now.parts.get(name, "")]


def _name_steps(steps: list[str]) -> str:
    if len(steps) < 2:
        return "".join(f" of the {step} step" for step in steps)
    return f" of the {', '.join(steps[:-1])} and {steps[-1]} steps"
