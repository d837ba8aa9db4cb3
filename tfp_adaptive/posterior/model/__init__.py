"""The model as one density on R^d with named parts."""
