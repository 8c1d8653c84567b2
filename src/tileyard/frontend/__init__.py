"""From user code to Programs: finding kernels in files, and TIR to Program."""
