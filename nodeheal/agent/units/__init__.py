"""The units of systemd that the wheel brings along."""
