"""The verb ``test``, and ``plan``: suites of cases, which cases run and in which pieces, and the results."""
