"""Samplers that learn an invertible map of their states."""
