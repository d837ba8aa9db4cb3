"""Finds starts of chains, and decides whether chains have arrived."""
