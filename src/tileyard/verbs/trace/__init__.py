"""The verb ``trace``: where the time of a run went, and the order of what a block of a kernel does."""
