"""A sampler for targets with several modes, which learns temperatures.

Symbols in this folder:

    pi, p_ref  density of the target, and of the reference
    b_k        inverse temperature of replica k, from 1 down to 0
    l          log pi - log p_ref
    K          number of replicas
"""
