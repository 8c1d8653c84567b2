"""What a test for pytest may hold."""


def test_holds_a_device(tile_device):
    """Nothing is run on it."""
    with tile_device():
        pass
