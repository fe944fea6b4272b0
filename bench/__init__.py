"""What speed and memory are measured with. Nothing here is a test: these numbers depend on the machine."""
