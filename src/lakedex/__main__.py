"""``python -m lakedex``: the command line."""

from __future__ import annotations

import sys

from lakedex.cli import main

if __name__ == "__main__":
    sys.exit(main())
