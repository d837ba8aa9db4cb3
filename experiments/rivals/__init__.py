"""Models as users write them, sampled by this library and by others.

Every run is a process of its own: ours in this environment, the others in one
that `make peers` builds. One judge reads the draws of all.
"""
