"""Samplers that learn an invertible map of their states.

Symbols in this folder, beside those of `core`:

    q, z       state of the chain, and its coordinates z = f^-1(q)
    f, Df      the map and its Jacobian
    U, g       -log pi and the gradient of log pi at q
    s, v, w    step size, first velocity and velocity in z
    L          number of leapfrog steps
"""
