"""Other hosts of a run: an agent on each offers its devices."""
