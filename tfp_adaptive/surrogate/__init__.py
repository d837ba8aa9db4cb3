"""Samplers that learn a density from their own draws.

Symbols in this folder, beside those of `core`:

    f          surrogate of log pi, the target; its gradient is the score
    walk       a random-walk step, which does not use the surrogate
    C          momentum scale
    h, L       step size, and number of leapfrog steps
    v          velocity
    n, d       number of past states, and size of a state
"""
