"""The version, which can be read without importing TensorFlow."""

__all__ = ['__version__']

__version__ = '0.1.0'
