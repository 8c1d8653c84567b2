"""The verb ``test``: suites of cases, which of them to run in what pieces, and what came of it."""
