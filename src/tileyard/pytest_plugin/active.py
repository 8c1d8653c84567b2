"""A run with ``--tileyard`` as its tests and fixtures see it."""

import pickle
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import BuildKey, Device, Outcome, Rule
from tileyard.base.settings import Settings
from tileyard.frontend.found import Found
from tileyard.pytest_plugin.declared import DeclaredSteps
from tileyard.pytest_plugin.devices import Holdings, TileDevice
from tileyard.pytest_plugin.far_calls import FarDevice
from tileyard.pytest_plugin.far_records import KernelStep, StepResult
from tileyard.pytest_plugin.forked import Teller
from tileyard.pytest_plugin.options import PluginOptions
from tileyard.targets.arguments import Allow, guard
from tileyard.targets.registry import find_needs, make_target

T = TypeVar("T")


class PreparedKernel:
    """A kernel built before the tests ran. Call it while a device is held, with NumPy arrays or
    torch CPU tensors, as the result of ``tileyard.compile``.
    """

    def __init__(
        self,
        result: StepResult,
        name: str,
        settings: Settings,
        holdings: Holdings,
        allow: Allow | None = None,
    ) -> None:
        """``allow`` is as in ``guard``."""
        self.name = name
        self._rule = result.rule
        self._allow = allow
        self.build = result.build
        self.target = result.target
        self._settings = settings
        self._holdings = holdings
        self._loaded: dict[str, Callable[..., object]] = {}
        self._needs = find_needs(self.target)
        if self._needs.loads_ahead:
            holdings.load_ahead(self._load)

    def __call__(self, *arguments: object) -> object:
        """Run it on the device that the test holds. Raises UsageError if the test holds none."""
        device = self._holdings.device
        if device is None:
            raise UsageError(
                f"kernel {self.name} is called while the test holds no device",
                "call it inside `with tile_device():`",
            )
        if self._needs.is_bound and device.kind != self._needs.device_class:
            raise UsageError(
                f"kernel {self.name} is built for {self.target}, and the test holds {device.name}",
                "name one of them with --tileyard-target and --tileyard-device",
            )
        self._load(device)
        return self._loaded[device.name](*arguments)

    def _load(self, device: Device) -> None:
        """Load it for a device. Raises DamagedError if its artifact is gone."""
        if device.name in self._loaded:
            return
        artifact = find_artifact(self.build, ObjectStore(self._settings.home / "objects"))
        if artifact is None:
            raise DamagedError(f"the artifact of {self.name} is gone", "run again to build it")
        loaded = make_target(self.target, self._settings.plugins).load(artifact, device)
        self._loaded[device.name] = guard(loaded.as_callable(), self._rule, self._allow)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return restore_kernel, (self.name, self.build, self.target, self._rule)

    def __repr__(self) -> str:
        return f"<kernel {self.name} for {self.target}, built ahead>"


FAR_SITE: ContextVar[tuple[Settings, Holdings]] = ContextVar("tileyard_far_site")
"""On the far side of a queue: the settings that find kernels, and the holder of the device."""


def restore_kernel(name: str, build: str, target: str, rule: Rule | None) -> PreparedKernel:
    """A kernel that was sent to the far side."""
    result = StepResult(step=name, build=BuildKey(build), target=target, rule=rule)
    return PreparedKernel(result, name, *FAR_SITE.get())


@dataclass(frozen=True, kw_only=True)
class Built:
    """The result of a ``tile_compile`` step: its function's return value, and the directory that it got."""

    result: object
    folder: Path
    seconds: float


class Active:
    """Options, devices, prepared kernels, and what a test holds. ``declared``: once tests are read."""

    declared: DeclaredSteps
    far_device: FarDevice | None = None  # in a test's own process, where devices are elsewhere
    is_far = False  # whether this is the far side of a queue
    _holdings: Holdings  # in a test's own process

    def __init__(
        self,
        options: PluginOptions,
        settings: Settings,
        devices: tuple[Device, ...],
        folder: Path,
    ) -> None:
        """``folder`` is the run's own directory; ``processes`` run tests at the same time."""
        self.options = options
        self.settings = settings
        self.devices = devices
        self.folder = folder
        self.processes = options.workers
        self.results: dict[str, StepResult] = {}

    @property
    def failed_builds(self) -> set[str]:
        """The keys of the steps that could not be built ahead."""
        failed = (r for r in self.results.values() if r.outcome is not Outcome.PASSED)
        return {result.build for result in failed if result.build}

    def enter(self, teller: Teller) -> Holdings:
        """In a test's own process: it reports what it holds through ``teller``."""
        limit_s = self.options.queue_limit_s
        self._holdings = Holdings(self.devices, limit_s, teller, may_ask=self.is_far)
        return self._holdings

    def find_failure(self, item: pytest.Item) -> tuple[Outcome, str] | None:
        """The reason why a test cannot run: a compile step that failed."""
        refusal = self.declared.refusals.get(item.nodeid)
        if refusal is not None:
            return Outcome.COMPILE_ERROR, refusal
        for named in (self.declared.kernels, self.declared.functions):
            for name, step in named.get(item.nodeid, {}).items():
                result = self.results[step]
                if result.outcome is not Outcome.PASSED:
                    return result.outcome, f"{name} could not be built: {result.message}"
        return None

    # ---- fixtures -----------------------------------------------------------------------------

    def device(self) -> TileDevice | FarDevice:
        """For ``tile_device``."""
        return self.far_device or TileDevice(self._holdings)

    def kernels(self, item: pytest.Item) -> Mapping[str, PreparedKernel]:
        """For ``tile_kernels``."""
        return {
            name: PreparedKernel(
                result, name, self.settings, self._holdings, self._find_allow(result.step)
            )
            for name, result in self._results(item, kernels=True).items()
        }

    def _find_allow(self, step_id: str) -> Allow | None:
        step = self.declared.steps.get(step_id)
        if not isinstance(step, KernelStep) or not isinstance(step.source, Found):
            return None
        found, arguments = step.source, step.arguments
        return lambda numbers: found.require({**arguments, **numbers}, {})

    def kernel(self, item: pytest.Item) -> PreparedKernel:
        """For ``tile_kernel``."""
        return _only(self.kernels(item), "tile_kernel", "tile_kernels")

    def builds(self, item: pytest.Item) -> Mapping[str, Built]:
        """For ``tile_builds``."""
        return {
            name: Built(
                result=pickle.loads(Path(result.pickled).read_bytes()),
                folder=Path(result.folder),
                seconds=result.seconds,
            )
            for name, result in self._results(item, kernels=False).items()
        }

    def built(self, item: pytest.Item) -> Built:
        """For ``tile_built``."""
        return _only(self.builds(item), "tile_compile", "tile_builds")

    def _results(self, item: pytest.Item, *, kernels: bool) -> dict[str, StepResult]:
        named = self.declared.kernels if kernels else self.declared.functions
        return {name: self.results[step] for name, step in named.get(item.nodeid, {}).items()}


def _only(found: Mapping[str, T], marker: str, fixture: str) -> T:
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise UsageError(f"this test has no marker {marker}")
    raise UsageError(
        f"this test has {len(found)} markers {marker}: {', '.join(found)}",
        f"take them by name from the fixture {fixture}",
    )
