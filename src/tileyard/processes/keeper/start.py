"""The start file: makes the keeper's modules importable, cached, without the rest of our package."""

import os
import sys

folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(folder)
if sys.argv[1] == "serve":
    __import__("keeper.fork_server", fromlist=["main"]).main(int(sys.argv[2]))
else:
    __import__("keeper.run", fromlist=["main"]).main(sys.argv[1:])
