"""Samplers of the experiments: by name for configs, and those to compare with.

`catalogue` registers all that configs can name. `baselines` holds kernels of
papers that are here to compare with; the files of peers call other libraries.
"""
