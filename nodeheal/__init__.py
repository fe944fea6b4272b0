"""nodeheal: heals accelerator nodes and brings training back."""

__version__ = "0.1.0"
