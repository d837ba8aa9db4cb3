"""Whether a kernel samples what it says: by simulated data, without a target.

`models` draw parameters and data jointly, `chains` run a kernel on many data
sets at once, `rank_test` and `geweke` turn the runs into p-values, `kernels`
lists families of the library, `broken` kernels that must fail.
"""

__all__ = []
