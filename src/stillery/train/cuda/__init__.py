"""What only a GPU needs: graph capture, streams, memory, transfers."""
