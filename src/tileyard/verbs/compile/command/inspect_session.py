"""Finds an artifact by any of its names, and shows the requested parts of it."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from tileyard.artifacts.bundles import open_bundle
from tileyard.artifacts.manifest import Artifact, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import BuildKey
from tileyard.base.wording import name_some
from tileyard.show.console import Console
from tileyard.show.opening import load_settings, open_store, print_json
from tileyard.show.words import make_visible
from tileyard.targets.cuda.launching import CUBIN_FILE, Details
from tileyard.targets.cuda.nvrtc import compile_ptx
from tileyard.targets.cuda.sass import disassemble
from tileyard.targets.own_sources import LOG_FILE
from tileyard.targets.registry import find_needs, list_texts
from tileyard.verbs.compile.view import describe_launch
from tileyard.verbs.test.plan.packed import choose_case, unpack_suite
from tileyard.verbs.tune.view.compiled import print_artifact, print_artifacts, print_resources

Part = Literal["source", "launch", "resources", "ptx", "sass", "log"]

_, *SOURCES = list_texts().values()
"""The names of generated code in all targets; the first text is the Program."""
SHORTEST_KEY = 6
"""Number of digits of a build key that are enough to name it."""

_KEY = re.compile(rf"[0-9a-f]{{{SHORTEST_KEY},40}}")


def show(named: str, wanted: Sequence[Part], *, as_json: bool) -> int:
    """Print the wanted parts of an artifact, or a summary. Raises UsageError."""
    home = load_settings().home
    file, _, case = named.partition("::")
    with tempfile.TemporaryDirectory(prefix="tileyard-inspect-") as scratch:
        if Path(file).is_file():
            built = _read_bundle(Path(file), ObjectStore(Path(scratch) / "objects"))
            if len(built) > 1 and not (case or wanted or as_json):
                print_artifacts(Console(), built, file)
                return 0
            found = built[choose_case(built, case, Path(file))]
        else:
            found = _find_in_home(named, ObjectStore(home / "objects"))
        if as_json:
            print_json(_describe(found))
        elif not wanted:
            print_artifact(Console(), found)
        for part in () if as_json else wanted:
            if len(wanted) > 1:
                print(f"---- {part} ----")
            _print_part(part, found)
    return 0


# ---- finding ------------------------------------------------------------------------------------


def _read_bundle(path: Path, objects: ObjectStore) -> dict[str, Artifact]:
    """What was built for each case of a bundle. Raises UsageError where it has none."""
    bundle = open_bundle(path, objects, expected=None)
    if not bundle.cases:
        raise UsageError(f"{path.name} is a {bundle.manifest.kind}: there is no built case in it")
    entries = unpack_suite(bundle.cases, objects).entries
    return {name: _open(entry.build, name, objects) for name, entry in entries.items()}


def _find_in_home(named: str, objects: ObjectStore) -> Artifact:
    """Find by build key, by trial, by config's name, in this order."""
    if _KEY.fullmatch(named):
        keys = objects.find_keys("build", named)
        if len(keys) > 1:
            raise UsageError(
                f"several build keys begin with {named}", f"among them {keys[0]}, {keys[1]}"
            )
        if keys:
            return _open(BuildKey(keys[0]), named, objects)
        if not named.isdecimal():  # the date with which a trial's id begins
            raise UsageError(
                f"there is no artifact {named} in {objects.root}",
                "tileyard compile --resources names them",
            )
    # Only now: a build key needs no database.
    from tileyard.store.trials import TrialQuery

    with open_store() as (store, _):
        trials = [
            trial
            for trial in store.list_trials(TrialQuery(limit=0))
            if trial.keys.build and named in (trial.case, f"{trial.kernel}/{trial.case}")
        ]
        trial = trials[0] if trials else store.get_trial(named)  # the newest one
    if not trial.keys.build:
        raise UsageError(f"{trial.id} ended before it was built: {trial.outcome}")
    return _open(trial.keys.build, named, objects)


def _open(build: BuildKey, named: str, objects: ObjectStore) -> Artifact:
    found = find_artifact(build, objects)
    if found is None:
        raise UsageError(
            f"what was built for {named} is not in {objects.root}",
            "it could not be built, or was removed: build it again",
        )
    return found


# ---- showing ------------------------------------------------------------------------------------


def _describe(artifact: Artifact) -> dict[str, object]:
    """An artifact as JSON, with the digests of its files by name. ``details`` are the target's own."""
    told = artifact.manifest
    return {
        "kernel": told.kernel,
        "target": told.target,
        "fingerprint": told.fingerprint,
        "build": told.build,
        "binary": told.binary,
        "files": told.files,
        "details": msgspec.Raw(told.details.encode() or b"null"),
    }


def _print_part(part: Part, artifact: Artifact) -> None:
    match part:
        case "source":
            print(make_visible(_read(artifact, *SOURCES)), end="")
        case "log":
            print(make_visible(_read(artifact, LOG_FILE)), end="")
        case "launch":
            details = _details(artifact)
            lines = describe_launch(details.launch, details.resources)
            print(make_visible("\n".join(lines)))
        case "resources":
            print_resources(Console(), _details(artifact).resources)
        case "ptx":
            details = _details(artifact)
            print(compile_ptx(_read(artifact, *SOURCES), details.arch, details.flags), end="")
        case "sass":
            symbols = [launch.symbol for launch in _details(artifact).launch.launches]
            print(disassemble(artifact.file(CUBIN_FILE), symbols), end="")
        case _:
            assert_never(part)


def _read(artifact: Artifact, *names: str) -> str:
    """The content of the first of these files that it has."""
    for name in names:
        if name in artifact.manifest.files:
            return artifact.file(name).read_text(encoding="utf-8", errors="replace")
    raise UsageError(
        f"an artifact for {artifact.manifest.target} has no {names[-1]}",
        f"it has {name_some(sorted(artifact.manifest.files))}",
    )


def _details(artifact: Artifact) -> Details:
    """The details of a GPU's artifact. Raises UsageError for others."""
    told = artifact.manifest
    if not find_needs(told.target).has_launch_record:
        raise UsageError(
            f"this artifact is for {told.target}", "only those for a GPU have a launch record"
        )
    try:
        return decode_json(told.details, Details)
    except msgspec.DecodeError as error:
        raise DamagedError(f"the manifest of a CUDA artifact cannot be read: {error}") from error
