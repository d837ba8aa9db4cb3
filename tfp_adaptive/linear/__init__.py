"""Samplers that learn a matrix C, which scales the noise of their proposals.

Symbols in this folder, beside those of `core`:

    a, b       C^T g(x) and C^T g(y), called pulls
    v, w       velocity at the start and along a trajectory
    L          number of leapfrog steps
    H          Hessian of -log pi
    D          -(L^2 - 1) / 6 C^T H C, which is 0 for L = 1
    beta       weight of the entropy in an objective
    rho_t      learning rate at step t
"""
