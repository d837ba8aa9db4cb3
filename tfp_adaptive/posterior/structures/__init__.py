"""Chooses the structure of the sampler: a matrix, a map or an exchange."""
