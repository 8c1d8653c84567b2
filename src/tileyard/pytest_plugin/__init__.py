"""``pytest --tileyard``: compile steps first and with no device, devices leased for what runs on them."""
