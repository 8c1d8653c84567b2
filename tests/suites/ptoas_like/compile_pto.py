"""Stands for a compiler of tile kernels: compile_pto.py KERNEL.pto OUT.cpp.

A kernel is one line, as in ``tadd float = src0[i] + src1[i]``, done for each element, or with ``+=`` a sum.
"""

import sys
from pathlib import Path

source, out = (Path(argument) for argument in sys.argv[1:])
lines = [line for line in source.read_text().splitlines() if line and not line.startswith("#")]
code = []
for line in lines:
    head, operator, expression = line.partition(" += " if " += " in line else " = ")
    name, dtype = head.split()
    if operator == " += ":
        body = f"{dtype} sum = 0; for (int i = 0; i < n; ++i) sum += {expression}; *dst = sum;"
    else:
        body = f"for (int i = 0; i < n; ++i) dst[i] = {expression};"
    parameters = f"{dtype}* dst, const {dtype}* src0, const {dtype}* src1, int n"
    code.append(f"void {name}({parameters}) {{ {body} }}\n")
out.write_text("".join(code))
