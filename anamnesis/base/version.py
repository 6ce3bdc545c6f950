"""The version, where code that must not import the package can read it."""

__version__ = "0.1.0"
