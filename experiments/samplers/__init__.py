"""Samplers of the experiments, by name for configs, and others to compare with.

`catalogue` registers all samplers that configs can name. `baselines` holds
kernels of papers for comparison. The files of peers call other libraries.
"""
