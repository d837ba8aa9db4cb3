"""A panel: many targets, every method, one budget.

The cases of a panel are `target | method`. Its checks are fixed before any run.
The errors of a run are measured against a truth or a reference.
"""
