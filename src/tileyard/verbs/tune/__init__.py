"""The verb ``tune``, and ``run`` and ``demo``: configs of a kernel, built, timed and compared."""
