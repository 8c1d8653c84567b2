"""What the command line costs before it does anything: ``tileyard --help`` beside its parts."""

import statistics
import subprocess
import sys
import time

ROUNDS = 15
COMMANDS = {
    "tileyard --help": [sys.executable, "-m", "tileyard", "--help"],
    "import typer": [sys.executable, "-c", "import typer"],
    "python": [sys.executable, "-c", "pass"],
}


def main() -> None:
    """Time the commands in turn and print medians and ratios."""
    samples_s: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            started_s = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            samples_s[name].append(time.perf_counter() - started_s)
    bare_s = statistics.median(samples_s["python"])
    for name, taken_s in samples_s.items():
        median_s = statistics.median(taken_s)
        print(f"{name:16} {median_s * 1e3:6.1f} ms   {median_s / bare_s:4.1f} x python")


if __name__ == "__main__":
    main()
