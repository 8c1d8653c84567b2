"""``pytest --tileyard``: runs compile steps without a device; leases devices for blocks that use them."""
