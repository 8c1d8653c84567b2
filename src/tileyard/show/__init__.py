"""What several verbs show and ask: the state of a run, tables, words, shared options."""
