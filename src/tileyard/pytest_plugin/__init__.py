"""``pytest --tileyard``: runs compile steps first, without a device, and leases devices for the blocks that use them."""
