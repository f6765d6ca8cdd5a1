"""`python -m rackyard`."""

from rackyard.cli import main

main()
