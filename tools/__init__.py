"""Tools beside a deployment: generated pages, licences, audit, an end-to-end run on an account. Never deployed."""
