"""What people ask: approve, pause, release, retire, review, replay."""
