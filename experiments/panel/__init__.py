"""The panel: many targets, every applicable method, seeds, one page."""
