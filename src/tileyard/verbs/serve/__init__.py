"""The verb ``serve``: pages of what is recorded and under way, for browsers."""
