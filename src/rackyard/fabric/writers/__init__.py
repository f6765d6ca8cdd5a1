"""A site in, text out: what schedulers and other tools read."""
