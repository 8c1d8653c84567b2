"""The verb ``look``: one block of a kernel, step by step."""
