"""Where a case of programs works: a folder of its own, and the stores that fill it."""

from pathlib import Path

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.manifest import TREE_FILE, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.model import BuildKey, Digest
from tileyard.modes import make_folder

DATA, TEMPORARY, USED = "data", "tmp", "used"
"""In a case's folder: what its steps work on, their temporary files, and a mark that it has run."""


def make_case_folder(folder: Path, golden: Digest, trees: Trees) -> None:
    """Make a case's folder, whose data begin as a copy of what its golden step made."""
    if folder.exists():
        remove_folder(folder)
    for name in (DATA, TEMPORARY):
        make_folder(folder / name)
    if golden:
        trees.copy(golden, folder / DATA)


class Stores:
    """A home directory with its objects and trees, opened once for a process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.objects = ObjectStore(home / "objects")
        self.trees = Trees(self.objects)

    def find_built(self, build: BuildKey) -> Path | None:
        """The directory that a build step has filled; None where nothing was built."""
        artifact = find_artifact(build, self.objects)
        if artifact is None or TREE_FILE not in artifact.manifest.files:
            return None
        return self.trees.path(artifact.manifest.files[TREE_FILE])
