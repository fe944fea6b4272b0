"""One thin module a function: parse, call one service, dump. Same stem as its service and its state."""
