"""The verb ``reduce``: a failing kernel, cut down."""
