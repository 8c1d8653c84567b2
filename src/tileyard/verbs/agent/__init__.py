"""``agent``: offers this host's devices to a run elsewhere."""
