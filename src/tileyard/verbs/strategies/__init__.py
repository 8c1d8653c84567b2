"""The verb ``strategies``: lists what chooses configs, and compares it on recorded spaces."""
