"""What crosses a process boundary: events, steps, notifications, names. Imports nothing of ours."""
