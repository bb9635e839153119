"""Run `python -m taskpack`."""

import sys

from taskpack.cli import main

if __name__ == "__main__":
    sys.exit(main())
