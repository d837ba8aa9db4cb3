"""34 posteriors of posteriordb with published reference draws, as a panel.

Each model is written as a user would write it: a joint distribution with the
data as they are published, and `tfpa.ImproperUniform` where the Stan program
has no prior. `python -m experiments posteriordb run` samples them, one process
for each run, with this library or another sampler. It compares means and mean
squares with the reference.
"""
