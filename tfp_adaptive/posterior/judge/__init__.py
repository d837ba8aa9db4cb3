"""Judges whether draws can be relied on."""
