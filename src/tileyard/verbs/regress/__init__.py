"""The verb ``regress``, and ``static`` and ``bisect``: two versions against each other."""
