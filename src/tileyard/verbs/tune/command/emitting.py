"""Prints the text that was generated for a config."""

from collections.abc import Mapping
from pathlib import Path

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import BuildKey, SourceLine
from tileyard.show.kernel_options import EmittedText
from tileyard.show.words import annotate, make_visible
from tileyard.targets.registry import list_texts


def emit_text(
    build: BuildKey, wanted: EmittedText, home: Path, lines: Mapping[int, SourceLine]
) -> None:
    """Print a build's text, with the user's ``lines`` where C names them. Raises UsageError without text."""
    artifact = find_artifact(build, ObjectStore(home / "objects")) if build else None
    if artifact is None:
        raise UsageError("nothing was built, so nothing was generated")
    files = list_texts()
    name = files[wanted]
    if name not in artifact.manifest.files:
        there = [word for word, file in files.items() if file in artifact.manifest.files]
        raise UsageError(
            f"no {name} was generated for {artifact.manifest.target}",
            f"there is: {', '.join(there)}",
        )
    text = artifact.file(name).read_text(encoding="utf-8")
    print(make_visible(annotate(text, lines) if name.endswith(".c") else text), end="")
