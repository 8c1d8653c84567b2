"""What a leased command finds in its environment."""

import pytest

from tileyard.processes.keeper.worker import Options, make_environment

LINE = ["parent=1", "tree=inner", "cwd=/", "grace=0", "confirm=0", "count=2"]
DEVICES = ["choice=gpu:1", "lock=/locks/a.lock", "env=SEEN=x", "mask=SEEN", "choice=gpu:b",
           "lock=/locks/b.lock", "env=SEEN=y", "mask="]  # fmt: skip


def test_all_devices_of_a_lease_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable names all; a mask's count from 0; a name without an index at its end stays whole."""
    for name in ("TILEYARD_TREE", "TILEYARD_PARTS"):
        monkeypatch.delenv(name, raising=False)
    options = Options([*LINE, *DEVICES, "--", "true"], {})
    environment = make_environment(options, options.devices, [3, 4])
    expected = {
        "TASK_DEVICE": "0,gpu:b",
        "TILEYARD_DEVICES": "gpu:1,gpu:b",
        "SEEN": "x,y",
        "TILEYARD_LEASE": "3,4",
        "TILEYARD_TREE": "inner",
        "TILEYARD_PARTS": "a:b",
    }
    assert {name: environment[name] for name in expected} == expected


def test_the_marks_of_outer_leases_stay() -> None:
    """So the next holder of an outer device finds an inner lease's processes too."""
    outer = {"TILEYARD_TREE": "outer", "TILEYARD_PARTS": "c"}
    options = Options([*LINE, *DEVICES, "--", "true"], outer)
    environment = make_environment(options, options.devices, [3, 4])
    expected = ("outer:inner", "c:a:b")
    assert (environment["TILEYARD_TREE"], environment["TILEYARD_PARTS"]) == expected
