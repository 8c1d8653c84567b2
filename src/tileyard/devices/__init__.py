"""Which devices this host has, and who may use them."""
