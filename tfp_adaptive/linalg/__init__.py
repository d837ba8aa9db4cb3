"""Structured matrices, without any Monte Carlo.

Symbols in this folder:

    d, n, p    size of a matrix, number of rows, number of superdiagonals
    B          upper banded matrix
    M, W, D    symmetric banded matrix M = W^T D W, W with unit diagonal
    L, U       lower and upper triangular factor, L L^T = M or U^T U = M
    r, v       rows on which a matrix acts
"""
