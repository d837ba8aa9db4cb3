"""Engines that run the steps of `sample_posterior`.

`HostEngine` compiles one small program of steps and learns in NumPy.
`CompiledEngine` compiles a kernel with its adaptation. Both have the same
methods.

Symbols: x is a state in unconstrained space, [d]. The steps run in z, [d], with
y = C z and x = f(y). C is a matrix, [d, d], and f the conditional Gaussian of
`fits.natural`; with a learned matrix, f only adds a mean.
"""
