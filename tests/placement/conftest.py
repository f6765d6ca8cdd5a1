"""The oracle, the instances and the terms that these tests share stand beside them, as plain modules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
