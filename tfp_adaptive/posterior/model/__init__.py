"""Turns a model into one density on R^d with named parts.

Symbols: x are the unknowns in the model's structure and supports. z is a vector
[d] in unconstrained space, and x = T(z) with a bijector T.
"""
