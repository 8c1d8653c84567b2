"""How a check is shown."""
