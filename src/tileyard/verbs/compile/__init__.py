"""The verbs ``compile``, ``inspect``, ``bundle`` and ``run-artifact``: what is built, and what it holds."""
