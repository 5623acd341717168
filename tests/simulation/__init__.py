"""A simulator of the whole pipeline in one process, without Spark: `python -m tests.simulation --help`,
tests/README.md.
"""

import sys
from pathlib import Path

# What it shares with other tests; pytest has it there, a worker of a campaign has not.
if (_TESTS := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, _TESTS)
