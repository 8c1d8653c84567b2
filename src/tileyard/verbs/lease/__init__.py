"""The verbs ``lease`` and ``devices``: devices that people and jobs share."""
