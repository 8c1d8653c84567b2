"""The verb `tune`: a source of cases over a space of configs, and the judge of its trials."""
