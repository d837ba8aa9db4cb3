"""Samplers that learn a matrix, which scales their noise."""
