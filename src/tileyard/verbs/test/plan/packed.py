"""A suite in a bundle, with builds and golden results. Paths of its folder and Python are marked in its text;
where it is opened they become local paths. What a suite or toolchain requires of a host is checked before.
"""

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from tileyard.artifacts.bundle_file import BundleManifest
from tileyard.artifacts.compat import Prerequisites, find_missing, require_fit
from tileyard.artifacts.digests import list_inputs, pack_inputs
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.decoding import decode_json
from tileyard.base.errors import BundleError, UsageError
from tileyard.base.model import Case, CommandWork, Device, Digest, Record, Step
from tileyard.base.quarantine import Quarantine
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of, name_some
from tileyard.devices.registry import find_devices
from tileyard.engine.programs import Programs
from tileyard.engine.proofs import list_late_steps
from tileyard.targets.command.given import PATH_END
from tileyard.verbs.test.plan.choosing import fits_case
from tileyard.verbs.test.result.result import Rule, Suite, SuiteCase
from tileyard.workers.protocol import RunEntry
from tileyard.workers.step_identity import ask_command

NOTHING = Prerequisites()
NO_VARIABLES: Mapping[str, str] = {}


def require_prerequisites(
    what: str,
    needed: Prerequisites,
    settings: Settings,
    *,
    more: Mapping[str, str] = NO_VARIABLES,
    named: Sequence[Device] = (),
) -> None:
    """Raise IncompatibleError naming all that is missing. ``more`` are variables besides our own, as a
    toolchain's; ``named`` are a run's devices.
    """
    if needed == NOTHING:
        return
    env = {**os.environ, **more}
    devices = [*named, *(find_devices(settings) if needed.devices else ())]
    kinds = Counter(kind for _, kind in {(device.name, device.kind) for device in devices})
    with tempfile.TemporaryDirectory(prefix="tileyard-asked-") as folder:
        ask = partial(ask_command, env=env, cwd=folder)
        require_fit(what, tuple(find_missing(needed, env, ask, kinds)))


Entry = TypeVar("Entry", Rule, Quarantine)
FOLDER_MARK, PYTHON_MARK = "%%tileyard-suite-folder%%", "%%tileyard-python%%"


class PackedSuite(Record):
    """The selected cases of a suite, what a runner needs for each, its build's target, and ``files``: a tree
    that takes the place of its folder.
    """

    suite: Suite
    entries: dict[str, RunEntry]
    targets: dict[str, str]
    files: Digest


def pack_suite(
    suite: Suite, entries: Mapping[str, RunEntry], targets: Mapping[str, str], objects: ObjectStore
) -> bytes:
    """The text of a suite for a bundle, with only cases that have entries; its files go into the store."""
    folder = f"{suite.folder}/"
    cases = tuple(
        msgspec.structs.replace(case, where=case.where.removeprefix(folder))
        for case in suite.cases
        if case.id in entries
    )
    packed = PackedSuite(
        suite=msgspec.structs.replace(
            suite,
            cases=cases,
            allow=tuple(_keep_used(suite.allow, cases)),
            skip=tuple(_keep_used(suite.skip, cases)),
            quarantine=tuple(_keep_used(suite.quarantine, cases)),
        ),
        entries=dict(entries),
        targets={case.id: targets[case.id] for case in cases},
        files=pack_inputs(
            list_inputs(_list_late(cases), Path(suite.folder)), Path(suite.folder), objects
        ),
    )
    text = msgspec.json.encode(packed).decode()
    # The interpreter first: it may lie in the suite's folder.
    for path, mark in ((sys.executable, PYTHON_MARK), (suite.folder, FOLDER_MARK)):
        text = re.sub(re.escape(_quote(path)) + PATH_END, mark, text)
    return text.encode()


def _keep_used(entries: Iterable[Entry], cases: Sequence[SuiteCase]) -> Iterator[Entry]:
    """Entries of a list that are about a case of the bundle, the only ones that matter where it runs."""
    return (one for one in entries if any(fits_case(one.cases, case) for case in cases))


def unpack_suite(data: bytes, objects: ObjectStore) -> PackedSuite:
    """The suite with the paths of this machine. Raises BundleError if the text is not a suite."""
    try:
        files = decode_json(data, _Files).files
        text = data.decode().replace(FOLDER_MARK, _quote(str(Trees(objects).path(files))))
        return decode_json(text.replace(PYTHON_MARK, _quote(sys.executable)), PackedSuite)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BundleError(f"the bundle holds no suite: {error}") from error


def check_suite(manifest: BundleManifest, read: Callable[[Digest], bytes]) -> None:
    """Raise BundleError if ``unpack_suite`` cannot read a bundle's case list."""
    try:
        data = read(Digest(manifest.cases)) if manifest.cases else b""
        files = decode_json(data, PackedSuite).files
    except (msgspec.DecodeError, OSError) as error:
        raise BundleError(f"the bundle holds no suite: {error}") from error
    if files not in manifest.trees:
        raise BundleError("the bundle holds no suite: its files are not in it")


def choose_case(names: Iterable[str], case: str, path: Path) -> str:
    """The bundle's case of this name, with or without folders, or its only one for ''. Raises UsageError."""
    known = list(names)
    found = [one for one in known if one == case or one.endswith(f"/{case}") or not case]
    if not found:
        raise UsageError(f"{path.name} has no case {case!r}", f"it has {name_some(known)}")
    if len(found) > 1:
        count = count_of(len(found), "case")
        hint = f"name one: {path}::CASE, of {name_some(found)}"
        raise UsageError(f"{path.name} holds {count}", hint)
    return found[0]


def find_packed(packed: PackedSuite, programs: Programs | None, case: Case) -> RunEntry:
    """The packed entry of a case, also for a further attempt at it; ``programs`` gives it its folder."""
    entry = packed.entries[case.id]
    command = entry.command
    if command is not None and programs is not None:
        folder = programs.adopt(case, entry.golden.tree)
        command = msgspec.structs.replace(command, folder=folder)
    return msgspec.structs.replace(entry, case=case.key, command=command)


class _Files(Record):
    """The part of a packed suite that has to be known before the rest can be read."""

    files: Digest


def _list_late(cases: Sequence[SuiteCase]) -> Iterator[Step]:
    for case in cases:
        if isinstance(case.work, CommandWork):
            yield from list_late_steps(case.work).values()


def _quote(path: str) -> str:
    """A path as written in a JSON text."""
    return msgspec.json.encode(path).decode()[1:-1]
