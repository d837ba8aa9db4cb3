"""What runs the steps of `sample_posterior`.

`HostEngine` learns in NumPy around one small program of steps; `CompiledEngine`
compiles a kernel with its adaptation. Chains use both by the same names.
"""
