"""The verbs that read and carry what is recorded: ``trials``, ``show``, ``history``, ``cache``, ``config``, ``export``, ``import``."""
