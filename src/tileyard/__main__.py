"""``python -m tileyard``: the command line."""

from tileyard.cli.entry import run

if __name__ == "__main__":
    run()
