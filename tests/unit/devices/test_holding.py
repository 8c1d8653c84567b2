"""Several devices as one."""

from tileyard.base.model import Device
from tileyard.devices.holding import join_devices


def card(number: int, identity: str = "card", kind: str = "npu") -> Device:
    """A card with a lock and a variable of its own."""
    return Device(
        name=f"{kind}:{number}",
        kind=kind,
        identity=identity,
        locks=(f"/locks/{number}",),
        env={"CARD": str(number)},
        mask="CARD",
    )


def test_neighbours_of_one_kind_are_joined() -> None:
    """Not across identities; programs find all of them by the same variables as one."""
    joined = join_devices([card(0), card(4, "other"), card(1), card(2)], 2)
    assert [one.name for one in joined] == ["npu:0,1", "npu:1,2"]
    first = joined[0]
    assert (first.identity, first.count, first.locks) == (
        "2 x card",
        2,
        ("/locks/0", "/locks/1"),
    )
    assert first.env == {
        "TASK_DEVICE": "0,1",  # within the mask
        "TILEYARD_DEVICES": "npu:0,npu:1",
        "CARD": "0,1",
    }
    assert first.members == (card(0), card(1))
    assert join_devices([card(0), card(1)], 3) == ()


def test_a_slot_of_a_queue_asks_for_several() -> None:
    """It has no members here: which they are the queue decides."""
    (joined,) = join_devices([card(0, kind="queue")], 2)
    assert (joined.name, joined.count, joined.members) == ("queue:0*2", 2, ())
