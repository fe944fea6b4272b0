"""The pure core: no AWS, no clock, no I/O beyond the catalog that ships beside the code."""
