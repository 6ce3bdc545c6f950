"""The version, where code that must not import the package can read it."""

__all__ = ["__version__"]

__version__ = "0.1.0"
