"""What is run beside a deployment: generated pages, licences, audit, once through on an account. Never deployed."""
