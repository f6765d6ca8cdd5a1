"""A small kubelet that runs pods as local processes on simulated trays; see README.md beside this file."""
