"""Kubernetes: reading what a cluster says of its nodes, and writing labels to them. Needs the extra `kubernetes`."""
