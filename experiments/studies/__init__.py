"""Studies: measurements to repeat when the library changes."""
