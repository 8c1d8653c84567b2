"""Loads the kernels of a bundle as functions: kernels that were built elsewhere, or that won there."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileyard.api.kernels import (
    LoadedKernel,
    Shapes,
    describe_shapes,
    list_shapes,
    load_trial,
    make_callable,
    settings_for,
    shapes_like,
)
from tileyard.artifacts.bundle_file import Expected
from tileyard.artifacts.bundles import open_bundle, read_manifest
from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import BuildKey, KernelWork, Rule, SourceLine, TensorSpec, Value
from tileyard.base.settings import Settings
from tileyard.base.wording import name_some
from tileyard.devices.registry import parse_device
from tileyard.show.words import format_config
from tileyard.store.choices import Choice
from tileyard.store.trials import ELSEWHERE, has_records, read_store
from tileyard.store.winners import open_winners
from tileyard.targets.arguments import guard
from tileyard.targets.registry import find_needs
from tileyard.verbs.test.plan.packed import check_suite, choose_case, unpack_suite


@dataclass(frozen=True, kw_only=True)
class PackedKernel:
    """A kernel of a bundle, with its binary in the object store."""

    kernel: str
    arguments: Mapping[str, Value]
    config: Mapping[str, Value]
    target: str
    build: BuildKey
    tensors: tuple[TensorSpec, ...]
    lines: Mapping[int, SourceLine]
    rule: Rule | None


SUFFIX = ".tyb"
"""The suffix of a bundle's name."""


class LoadedBundle(Mapping[str, LoadedKernel]):
    """A bundle's kernels by name, loaded at first use. Called with arrays, it runs the one for these."""

    def __init__(
        self, path: Path, kernels: Mapping[str, PackedKernel], settings: Settings, device: str
    ) -> None:
        self._path = path
        self._kernels = kernels
        self._settings = settings
        self._device = device
        self._loaded: dict[str, LoadedKernel] = {}
        self._fitting: dict[Shapes, LoadedKernel] = {}

    def __getitem__(self, name: str) -> LoadedKernel:
        """The kernel of this name. Raises KeyError, and DamagedError if its artifact is gone."""
        if name not in self._loaded:
            packed, objects = self._kernels[name], ObjectStore(self._settings.home / "objects")
            artifact = find_artifact(packed.build, objects)
            if artifact is None:
                raise DamagedError(
                    f"the artifact of {name} is gone from {objects.root}", "load the bundle again"
                )
            run = make_callable(artifact, packed.target, self._settings, self._device, packed.lines)
            self._loaded[name] = LoadedKernel(
                guard(run, packed.rule),
                packed.kernel,
                packed.target,
                packed.arguments,
                packed.config,
            )
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def find(self, name: str) -> LoadedKernel:
        """The kernel of this name, without its folders. Raises UsageError if there is none, or several."""
        return self[choose_case(self._kernels, name, self._path)]

    def __call__(self, *arguments: Any) -> object:  # noqa: ANN401 - arrays of any library
        """Run the kernel for these arrays: see ``Winner.load``. Raises UsageError for none, or several."""
        shapes = list_shapes(arguments)
        if shapes not in self._fitting:
            names = [
                name
                for name, packed in self._kernels.items()
                if shapes in shapes_like(packed.tensors)
            ]
            if not names:
                what = f"{self._path.name} has no kernel for {describe_shapes(shapes)}"
                raise UsageError(what, f"it has {name_some(self._kernels)}")
            name = choose_case(names, "", self._path)
            self._fitting[shapes] = self[name]
        return self._fitting[shapes](*arguments)

    def __repr__(self) -> str:
        return f"<bundle {self._path.name}: {name_some(self._kernels)}>"


def load_bundle(path: Path, settings: Settings, device: str) -> LoadedBundle:
    """Add a bundle's kernels to the data directory. Raises BundleError, IncompatibleError, UsageError."""
    home = settings.make_home()
    kind = read_manifest(path).kind
    if kind == "winners":
        kernels = _read_winners(open_winners(path, home), settings, device)
    elif kind == "selection":
        kernels = _read_selection(path, home)
    else:
        kernels = {}
    if not kernels:
        raise UsageError(f"{path.name} is a {kind} without kernels")
    return LoadedBundle(path, kernels, settings, device)


def _read_selection(path: Path, home: Path) -> dict[str, PackedKernel]:
    objects = ObjectStore(home / "objects")
    bundle = open_bundle(path, objects, Expected(kind="selection"), accept=check_suite)
    packed = unpack_suite(bundle.cases, objects)
    return {
        case.id: PackedKernel(
            kernel=case.work.kernel,
            arguments=case.work.arguments,
            config=case.work.config,
            target=packed.targets[case.id],
            build=packed.entries[case.id].build,
            tensors=packed.entries[case.id].specs,
            lines=packed.entries[case.id].lines,
            rule=packed.entries[case.id].rule,
        )
        for case in packed.suite.cases
        if isinstance(case.work, KernelWork)
    }


def _read_winners(
    choices: Sequence[Choice], settings: Settings, device: str
) -> dict[str, PackedKernel]:
    """Each winner by its kernel and arguments; of several kinds of silicon, this one's if any."""

    def is_own(choice: Choice) -> bool:
        return choice.silicon == _silicon_for(choice.target, settings, device)

    return {
        " ".join(filter(None, (choice.kernel, format_config(choice.arguments)))): PackedKernel(
            kernel=choice.kernel,
            arguments=choice.arguments,
            config=choice.config,
            target=choice.target,
            build=choice.build,
            tensors=choice.tensors,
            lines={},
            rule=choice.rule,
        )
        for choice in sorted(choices, key=is_own)
    }


def _silicon_for(target: str, settings: Settings, device: str) -> str:
    """The silicon that kernels for a target run on here; empty if there is none."""
    try:
        name = device or f"{find_needs(target).device_class}:0"
        return parse_device(name, settings).identity
    except UsageError:
        return ""


def load(
    trial: str | os.PathLike[str],
    *,
    device: str = "",
    home: str | os.PathLike[str] | None = None,
) -> LoadedKernel | LoadedBundle:
    """The kernel of a recorded trial as a function on arrays, by the trial's id; or the kernels of a bundle.

    ``"gemm.tyb"`` is a bundle written by ``tileyard compile -o`` or ``tileyard export --binaries``: a mapping
    from name to kernel, which can itself be called with arrays. ``"gemm.tyb::block_M=64,block_N=64"`` is one
    kernel of it, as in ``tileyard inspect``. A bundle needs neither sources nor TileLang.

    Raises UsageError if there is no such trial, file or kernel, DamagedError if the artifact is
    gone, IncompatibleError for a bundle that does not fit this host.
    """
    settings = settings_for(home)
    file, _, name = os.fspath(trial).partition("::")
    if Path(file).suffix == SUFFIX or not isinstance(trial, str):
        bundle = load_bundle(Path(file), settings, device)
        return bundle.find(name) if name else bundle
    if not has_records(settings.home):
        hint = f"home= or {ELSEWHERE}"
        raise UsageError(f"no trial {trial}: nothing is recorded in {settings.home}", hint)
    with read_store(settings.home) as store:
        found = store.get_trial(trial)
    return load_trial(found, settings, device)
