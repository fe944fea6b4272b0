"""nodeheal: heals accelerator nodes and brings training back."""

__version__ = "0.3.0"
