"""The console: pages over the API, on the operator's own machine, with their credentials."""
