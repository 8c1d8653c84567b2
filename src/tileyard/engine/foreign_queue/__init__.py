"""Runs batches as tasks of an existing queue of devices: the near side and the far side."""
