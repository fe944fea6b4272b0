"""Takes every guard-shaped expression out of the code that acts, one at a time, and says who notices: ADR 38."""
