"""Runs of the papers' experiments: `python -m experiments --help`."""
