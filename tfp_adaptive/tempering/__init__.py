"""Samplers of several modes: the temperatures are learned."""
