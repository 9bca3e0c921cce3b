"""``python -m benchmarks``."""

import sys

from benchmarks.run import main

try:
    sys.exit(main(sys.argv[1:]))
except KeyboardInterrupt:
    sys.exit(130)
