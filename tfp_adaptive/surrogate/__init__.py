"""Samplers that learn a density from their own draws."""
