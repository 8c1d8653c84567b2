"""One block of a run, step by step, and where a wrong element of its results came from."""
