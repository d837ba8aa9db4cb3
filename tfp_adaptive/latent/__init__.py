"""Samplers of fields with a Gaussian prior, which is given."""
