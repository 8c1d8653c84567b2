"""How records are shown."""
