"""Reports: studies and runs as one HTML file that opens without a network."""
