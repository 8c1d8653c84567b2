"""What a test for pytest may hold."""


def test_holds_a_device(tile_device):
    """It is known by its name while it is held."""
    with tile_device() as device:
        name = device.name
    assert name
