"""The run's end of cases of programs on other hosts: the trees that they need there, and what they leave."""

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tileyard.artifacts.copying import scratch_folder
from tileyard.artifacts.digests import IGNORED, list_inputs, pack_inputs
from tileyard.artifacts.folders import Listing, decode_listing, encode_listing
from tileyard.artifacts.manifest import TREE_FILE, find_artifact
from tileyard.artifacts.objects import ObjectStore, digest_bytes
from tileyard.artifacts.program_files import PYTHON
from tileyard.base.errors import DamagedError
from tileyard.base.model import Digest, Step
from tileyard.base.modes import make_folder
from tileyard.engine.hosts.messages import CaseEnded
from tileyard.engine.hosts.session import HostSession, SentTree
from tileyard.engine.hosts.works import apply_work, find_changed
from tileyard.targets.command.given import StepSite
from tileyard.workers.command_runs import DATA, Stores, begin_case_folder
from tileyard.workers.protocol import CommandRun, RunEntry

IN_SUITE: Final = re.compile(r"/suite-\w+/([^\s:;'\"`]+)")
"""In what a program printed: the path of a file in the folder of its suite on another host."""


class FarPrograms:
    """The cases of programs of one run whose run steps other hosts carry out; ``home`` is the run's."""

    def __init__(self, home: Path) -> None:
        self._stores = Stores(home)
        self._packed: dict[tuple[str, frozenset[str]], Digest] = {}
        self._toolchains: dict[str, StepSite] = {}

    def note_toolchain(self, site: StepSite) -> str:
        """Note the place of a toolchain of some steps; it has another one on each host. Returns its tree."""
        self._toolchains[site.toolchain] = site
        return site.tree

    def prepare(self, entry: RunEntry) -> tuple[RunEntry, tuple[SentTree, ...]]:
        """An entry as it is for other hosts, with trees in place of folders, and these trees.
        Raises DamagedError, HomeError, UsageError and OSError.
        """
        command = entry.command
        if command is None:
            return entry, ()
        trees = [self._find_suite(command)]
        artifact = find_artifact(entry.build, self._stores.objects)
        if artifact is not None and TREE_FILE in artifact.manifest.files:
            trees.append(self._find(artifact.manifest.files[TREE_FILE]))
        golden = entry.golden
        if golden.tree:
            trees.append(self._find(golden.tree, golden.part.path))
            golden = msgspec.structs.replace(golden, tree=trees[-1].digest)
        far = _generalize(command, trees[0].digest, self._toolchains.get(command.toolchain))
        folders = {path: self._find_folder(path) for path in self._list_folders(far.env)}
        trees += folders.values()
        named = {path: tree.digest for path, tree in folders.items()}
        far = msgspec.structs.replace(far, folders=named)
        return msgspec.structs.replace(entry, command=far, golden=golden), tuple(trees)

    async def fetch_work(
        self, session: HostSession, device: str, entry: RunEntry, ended: CaseEnded
    ) -> None:
        """Give a case's folder what its program left on a device. Raises as ``fetch_left``, and OSError."""
        if entry.command is None or not ended.work:
            return
        home, tree, part = self._stores.home, entry.golden.tree, entry.golden.part
        golden = (
            self._stores.trees.listing(tree).narrowed(part.path) if tree else Listing(entries={})
        )
        folder = home / entry.command.folder
        make_folder(home / "tmp")
        with scratch_folder(home / "tmp") as scratch:
            objects = ObjectStore(scratch)
            for data in ended.left:
                objects.put_bytes(data)
            await session.fetch_left([ended.work], device, objects)
            listing = decode_listing(objects.get_bytes(ended.work))
            await session.fetch_left(find_changed(listing, golden), device, objects)
            await asyncio.to_thread(begin_case_folder, folder, entry.golden, self._stores.trees)
            await asyncio.to_thread(apply_work, listing, golden, folder / DATA, objects)

    def explain(self, entry: RunEntry, said: str) -> str:
        """That a file of the suite which a failed program named was not sent; empty if that was not so."""
        if entry.command is None or not entry.command.suite:
            return ""
        sent = self._find_suite(entry.command).listing.entries
        for name in IN_SUITE.findall(said):
            if name not in sent and Path(entry.command.suite, name).is_file():
                return (
                    f" ({name} of the suite is not on that host: its step must list it in `inputs`)"
                )
        return ""

    def _list_folders(self, env: Mapping[str, str]) -> frozenset[str]:
        """The folders of the run's data directory that variables list, such as a checkout's modules."""
        texts = {entry for text in env.values() for entry in text.split(os.pathsep)}
        home = self._stores.home
        return frozenset(
            one for one in texts if Path(one).is_relative_to(home) and Path(one).is_dir()
        )

    def _find_folder(self, path: str) -> SentTree:
        inside = (str(one) for one in Path(path).iterdir() if one.name not in IGNORED)
        return self._pack(path, frozenset(inside))

    def _find(self, tree: Digest, part: str = "") -> SentTree:
        folder = self._stores.trees.path(tree, part)
        listing = self._stores.trees.listing(tree).narrowed(part)
        digest = digest_bytes(encode_listing(listing)) if part else tree
        return SentTree(digest=digest, listing=listing, folder=folder)

    def _find_suite(self, command: CommandRun) -> SentTree:
        suite = command.suite
        patterns = list_inputs(_steps(command), Path(suite)) if suite else frozenset()
        return self._pack(suite, patterns)

    def _pack(self, folder: str, names: frozenset[str]) -> SentTree:
        """The tree of these files of a folder, packed once, and again if it is damaged."""
        asked = folder, names
        if asked not in self._packed:
            self._packed[asked] = pack_inputs(names, Path(folder), self._stores.objects)
        try:
            return self._find(self._packed[asked])
        except DamagedError:
            self._packed.pop(asked, None)
            raise


def _steps(command: CommandRun) -> tuple[Step, ...]:
    return (command.run, *(() if command.hot is None else (command.hot.step,)))


def _generalize(command: CommandRun, suite: Digest, toolchain: StepSite | None) -> CommandRun:
    """A command without this host's paths: its suite and toolchain are trees, and its texts name places."""
    site = StepSite(suite=command.suite)
    named = {name for step in _steps(command) for name in step.inherits}
    hot = command.hot
    own = {} if toolchain is None else toolchain.env
    return msgspec.structs.replace(
        command,
        run=_generalize_step(command.run, site),
        hot=hot and msgspec.structs.replace(hot, step=_generalize_step(hot.step, site)),
        suite=suite,
        toolchain="" if toolchain is None else toolchain.tree,
        env={name: text for name, text in command.env.items() if own.get(name) != text},
        inherited={name: os.environ[name] for name in sorted(named) if name in os.environ},
    )


def _generalize_step(step: Step, site: StepSite) -> Step:
    program, *rest = step.argv
    is_own = program == sys.executable
    if is_own or not PYTHON.fullmatch(Path(program).name):  # another one is compared, and stays
        program = site.generalize(program)
    return msgspec.structs.replace(
        step,
        argv=(program, *map(site.generalize, rest)),
        env={name: site.generalize(text) for name, text in step.env.items()},
        cwd=site.generalize(step.cwd),
        inputs=(),
        inherits=tuple(name for name in step.inherits if name in os.environ),
        runs=None,
        versions=(),
    )
