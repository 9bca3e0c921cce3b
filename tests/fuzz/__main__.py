"""``python -m fuzz``: see :mod:`fuzz.long_run`."""

import sys

from fuzz.long_run import main

if __name__ == "__main__":
    sys.exit(main())
