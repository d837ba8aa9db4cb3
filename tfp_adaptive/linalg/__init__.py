"""Structured matrices, without any Monte Carlo."""
