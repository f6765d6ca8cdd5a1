"""Committed weights of the tiny family. `python -m rackyard.shape3d.weights` makes them anew."""
