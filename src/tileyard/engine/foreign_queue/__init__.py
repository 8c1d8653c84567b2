"""Devices behind a queue that is already there: batches become its tasks; the near side and the far side."""
