"""What every room shares: records, events, errors, settings, time, words."""
