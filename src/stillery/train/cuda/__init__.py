"""GPU-only code: graph capture, streams, memory, transfers."""
