"""How the ports are kept: one folder a technology. `memory` is the twin of each and ships."""
