"""The verb ``check``: mistakes in the synchronization of kernels, and undefined accesses."""
