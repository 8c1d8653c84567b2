"""Describes a bundle: its content, its requirements, and what may surprise its user."""

from collections.abc import Iterator

import msgspec
from rich.console import Console
from rich.text import Text

from tileyard.artifacts.bundle_manifest import BundleManifest
from tileyard.artifacts.compat import Requirements
from tileyard.artifacts.toolchains import Layout
from tileyard.base.decoding import decode_json
from tileyard.base.errors import BundleError
from tileyard.base.wording import count_of
from tileyard.show.words import clean_line, format_bytes

SHOWN = 5


def print_bundle(console: Console, manifest: BundleManifest, name: str, size: int) -> None:
    """Print one line of facts, one per requirement, and one per surprise."""
    commit = f" of {manifest.commit}" if manifest.commit else ""
    target = f" for {manifest.target}" if manifest.target else ""
    facts = (
        f"{name}: {manifest.kind}{target}{commit}, {format_bytes(size)}"
        f" ({format_bytes(manifest.size)} in {count_of(len(manifest.contents), 'entry')})"
    )
    console.print(Text(clean_line(facts)), soft_wrap=True)
    for line in describe_needs(manifest.requires):
        console.print(Text(f"  needs {clean_line(line)}"), soft_wrap=True)
    if manifest.kind == "toolchain":
        try:
            layout = decode_json(manifest.details, Layout)
        except msgspec.DecodeError:
            raise BundleError(f"{name} is not a sound toolchain: its manifest is invalid") from None
        for line in _surprises(layout):
            console.print(Text(f"  {clean_line(line)}", style="yellow"), soft_wrap=True)


def describe_needs(needed: Requirements) -> Iterator[str]:
    """Each requirement in a few words."""
    if needed.machine:
        yield " ".join(part for part in (needed.machine, needed.cpu_level) if part)
    if needed.cpu_features:
        yield f"a CPU with {', '.join(needed.cpu_features)}"
    own = " (or the one that is packed)" if needed.has_cxx else ""
    for name, version, note in (
        ("glibc", needed.glibc, ""),
        ("libstdc++ with GLIBCXX", needed.glibcxx, own),
        ("libstdc++ with CXXABI", needed.cxxabi, own),
    ):
        if version:
            yield f"{name} {version}{note}"
    if needed.python:
        yield f"Python {needed.python}"
    yield from needed.libraries
    if needed.driver:
        yield f"driver {needed.driver}"
    yield from needed.prerequisites.describe()


def _surprises(layout: Layout) -> Iterator[str]:
    for names, what in (
        (layout.stale, "hold the place where they were built, which may not matter"),
        (layout.interpreters, "are run by a program that is not packed"),
        (layout.missing, "were needed and not found when it was packed"),
    ):
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            yield f"{len(names)} {what}: {', '.join(names[:SHOWN])}{more}"
