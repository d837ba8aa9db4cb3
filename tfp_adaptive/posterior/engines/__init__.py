"""Engines that run the steps of `sample_posterior`.

`HostEngine` learns in NumPy around one small program of steps. `CompiledEngine`
compiles a kernel with its adaptation. `Chains` calls both by the same names.

Symbols: x is a state in unconstrained space, [d]. The steps run in z, [d], with
y = C z and x = f(y). C is a matrix, [d, d], and f the conditional Gaussian of
`fits.natural`; a learned matrix has an f that only adds a mean.
"""
