"""The part that every pytest run loads: options, markers, fixtures. The rest is loaded with ``--tileyard``.

Nothing else of Tileyard is imported here before that: a run without the option pays only for this file and
its table of options. It is the top of the room; nothing in the room imports it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from tileyard.pytest_plugin.flags import OPTIONS

if TYPE_CHECKING:
    from tileyard.pytest_plugin.active import Active
    from tileyard.pytest_plugin.devices import TileDevice
    from tileyard.pytest_plugin.far_calls import FarDevice

ACTIVE: "pytest.StashKey[Active]" = pytest.StashKey()
"""Key under which a run with ``--tileyard`` keeps its state."""

MARKERS = (
    "tile_kernel(*, kernel, name='', arguments=None, target='', out_idx=None, check_sync=None, **values): "
    "build this kernel before the tests run; values come from here and from the test's own parameters",
    "tile_compile(*, function, name='', limit='', inputs=[], runs=[], env=[]): call this function before the "
    "tests run, with no device; it gets `out`, a directory, and the test's parameters that it names; what it "
    "made is kept if inputs, programs or variables are declared",
    "tile_limit(limit): how long this test may take, such as '90s' or '5m'",
)


class Hooks:
    """Hooks that a tree may implement in its ``conftest.py``."""

    def pytest_tileyard_compile_steps(
        self, item: pytest.Item
    ) -> Iterable[
        tuple[str, Callable[..., object], Mapping[str, object]]
        | tuple[str, Callable[..., object], Mapping[str, object], Mapping[str, Sequence[str]]]
    ]:
        """What a test needs built: key, function, arguments, and, to have it kept, a dict of what
        `tile_compile` declares. Equal keys are one step, called once, with no device.
        """
        raise NotImplementedError

    @pytest.hookspec(firstresult=True)
    def pytest_tileyard_borrows(self, item: pytest.Item) -> bool | None:
        """Whether a test has to run on a device of the queue; None: its fixtures and kernels decide."""
        raise NotImplementedError


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hook, so that a tree that has it also runs without ``--tileyard``."""
    pluginmanager.add_hookspecs(Hooks)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set what has to be set before anything else is imported."""
    # pytest recompiles every module of a distribution that has a plugin, because of its
    # assert statements: seconds, wherever its cache cannot be written. Ours has none for tests.
    marked = getattr(
        getattr(early_config.pluginmanager, "rewrite_hook", None), "_must_rewrite", None
    )
    if isinstance(marked, set):
        marked.discard("tileyard")
    if early_config.known_args_namespace.tileyard:
        from tileyard.pytest_plugin.forked import spare_threads

        spare_threads()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("tileyard", "tile kernels: compile first, lease devices briefly")
    group.addoption(
        "--tileyard",
        action="store_true",
        default=False,
        help="run compile steps first and with no device, and every test in a process of its own",
    )
    for name, (default, settings) in OPTIONS.items():
        told = f"{settings['help']} (default: {default})" if default else settings["help"]
        group.addoption(f"--tileyard-{name}", default=None, **{**settings, "help": told})


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; with ``--tileyard``, take the run over."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("tileyard"):
        # Only here, so that other runs do not pay for it.
        from tileyard.pytest_plugin.plugin import activate

        config.stash[ACTIVE] = activate(config)
        return
    for name in OPTIONS:
        if config.getoption(f"tileyard_{name.replace('-', '_')}") is not None:
            raise pytest.UsageError(f"--tileyard-{name} needs --tileyard")


def _active(request: pytest.FixtureRequest, fixture: str) -> "Active":
    active = request.config.stash.get(ACTIVE, None)
    if active is None:
        pytest.fail(f"the fixture {fixture} needs `pytest --tileyard`", pytrace=False)
    return active


@pytest.fixture
def tile_device(request: pytest.FixtureRequest) -> "TileDevice | FarDevice":
    """Lease a device for a block: ``with tile_device() as device:``, or ``tile_device.run(f, *args)``."""
    return _active(request, "tile_device").device()


@pytest.fixture
def tile_kernel(request: pytest.FixtureRequest) -> object:
    """The compiled kernel of the test's ``tile_kernel`` marker, a function on arrays."""
    return _active(request, "tile_kernel").kernel(request.node)


@pytest.fixture
def tile_kernels(request: pytest.FixtureRequest) -> Mapping[str, object]:
    """The compiled kernels of all the test's ``tile_kernel`` markers by name."""
    return _active(request, "tile_kernels").kernels(request.node)


@pytest.fixture
def tile_built(request: pytest.FixtureRequest) -> object:
    """What the test's ``tile_compile`` step made: ``result``, ``folder`` and ``seconds``."""
    return _active(request, "tile_built").built(request.node)


@pytest.fixture
def tile_builds(request: pytest.FixtureRequest) -> Mapping[str, object]:
    """What all the test's ``tile_compile`` steps made, by name."""
    return _active(request, "tile_builds").builds(request.node)
