"""The devices of this host, and who may use them."""
