"""Makes the folders in which cases of programs work, and opens the stores that fill them."""

from pathlib import Path

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.manifest import TREE_FILE, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import UsageError
from tileyard.base.model import BuildKey, Digest
from tileyard.base.modes import make_folder
from tileyard.base.parts import WHOLE, GoldenPart

DATA, TEMPORARY, USED = "data", "tmp", "used"
"""In a case's folder: the data of its steps, their temporary files, and a mark that it has run."""


def make_case_folder(folder: Path, golden: Digest, trees: Trees, part: GoldenPart = WHOLE) -> None:
    """Make a case's folder from its part of the golden step's result. Raises UsageError if there is none."""
    if folder.exists():
        remove_folder(folder)
    for name in (DATA, TEMPORARY):
        make_folder(folder / name)
    if not golden:
        return
    put = trees.link if part.is_linked else trees.copy
    try:
        put(golden, folder / DATA, part.path)
    except UsageError as error:
        raise UsageError(f"golden step made nothing for this case: {error.message}") from error


class Stores:
    """A home directory with its objects and trees, opened once per process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.objects = ObjectStore(home / "objects")
        self.trees = Trees(self.objects)

    def find_made(
        self, golden: Digest, build: BuildKey, part: GoldenPart = WHOLE
    ) -> dict[str, str]:
        """The directories that golden (only its ``part`` unchanged) and build steps made, by placeholder."""
        places: dict[str, str] = {}
        if golden:
            places["golden"] = str(self.trees.path(golden, part.path))
        artifact = find_artifact(build, self.objects) if build else None
        if artifact is not None and TREE_FILE in artifact.manifest.files:
            places["build"] = str(self.trees.path(artifact.manifest.files[TREE_FILE]))
        return places
