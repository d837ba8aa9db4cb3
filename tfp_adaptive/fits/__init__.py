"""Fits of matrices and maps to pairs of states and gradients, in NumPy."""
