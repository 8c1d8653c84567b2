"""The verb ``passes``: the result of each pass on a kernel."""
