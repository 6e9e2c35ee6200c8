"""Studies: methods x tasks x seeds, and what can be concluded from them."""
