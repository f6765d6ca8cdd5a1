"""What the tests of the kubelet share."""

import sys
from pathlib import Path

# With `--import-mode=importlib` a test module's folder isn't searched for what it imports.
sys.path.insert(0, str(Path(__file__).parent))
