"""Broken inputs for whatever reads a file: configs, result folders, data."""
