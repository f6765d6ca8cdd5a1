"""Makes the helpers of this folder and the toy job importable by the tests here."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "controller")]
