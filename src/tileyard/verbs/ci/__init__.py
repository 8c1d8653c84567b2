"""The verb ``ci``: suites as jobs of a CI run."""
