"""Measurements, each run once: one module and one record for each."""
