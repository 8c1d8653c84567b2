"""The verbs that read and carry records: trials, show, history, cache, config, export, import."""
