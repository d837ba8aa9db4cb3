"""Where chains start, and whether they have arrived."""
