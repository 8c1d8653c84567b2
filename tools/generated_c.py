"""Writes Program and C of each kernel of tests/kernels: ``python tools/generated_c.py FOLDER``.

For a change that should change no code: run it before and after, and compare the folders with ``diff -r``.
"""

import argparse
import importlib
import sys
from pathlib import Path

from tileyard.base.errors import UnsupportedError
from tileyard.ir.printer import print_program

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Write a file for each example, and say how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    sys.path.insert(0, str(ROOT))
    load_module = importlib.import_module("tests.differential.conftest").load_module
    examples = importlib.import_module("tests.differential.cuda_examples").EXAMPLES
    modules = {
        name: load_module(ROOT / "tests" / "kernels" / f"{name}.py")
        for name in sorted({example.file for example in examples.values()})
    }
    # TileLang takes its time, and asks for its target first.
    lower = importlib.import_module("tileyard.frontend.tilelang").lower_prim_func
    generate = importlib.import_module("tileyard.targets.cpu.emit.program").generate
    target = importlib.import_module("tileyard.targets.cpu.target").CpuTarget()
    folder.mkdir(parents=True, exist_ok=True)
    for name, example in examples.items():
        kernel = getattr(modules[example.file], example.kernel)
        function = getattr(kernel, "jit_impl", kernel)
        try:
            lowered = lower(function.get_tir(**example.arguments), function.out_idx)
            program = print_program(lowered.program)
            (folder / f"{name.replace(' ', '_')}.tile").write_text(program, encoding="utf-8")
            text = generate(lowered.program, target.toolchain.machine, lowered.lines).text
        except UnsupportedError as refusal:
            text = f"/* {refusal} */"
        (folder / f"{name.replace(' ', '_')}.c").write_text(text, encoding="utf-8")
    print(f"{len(examples)} kernels in {folder}")


if __name__ == "__main__":
    main()
