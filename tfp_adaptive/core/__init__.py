"""Base classes and helpers that several families of samplers share.

Symbols in this folder:

    pi, q      density of the target, and of the proposal, q(y | x)
    d          number of coordinates of one chain, or event size
    x, y       current and proposed state, [chains..., d]
    g(x)       gradient of the log target at x
    s          step size
    C          scale factor of the proposal; C C^T is its covariance
    E          tangent at C: the factor moves as C (I + E)
    e          standard normal noise
    r          log acceptance ratio, [chains...]
"""
