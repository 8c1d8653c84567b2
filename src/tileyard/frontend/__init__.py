"""From user code to Programs: finds kernels in files, and lowers TIR to Programs."""
