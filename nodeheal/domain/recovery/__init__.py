"""One incident from its first fault to its end: what is decided, what is done already, what holds it back."""
