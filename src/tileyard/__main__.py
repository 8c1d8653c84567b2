"""``python -m tileyard``: the command line."""

from tileyard.cli.main import run

if __name__ == "__main__":
    run()
