"""Implementations of the ports, one folder for each technology. `memory` implements every port as well, and is
shipped.
"""
