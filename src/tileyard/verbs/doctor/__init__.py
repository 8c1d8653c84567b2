"""The verb ``doctor``: problems of a host, and how to fix them."""
