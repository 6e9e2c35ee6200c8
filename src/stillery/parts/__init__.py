"""Pure functions a method is composed of; no part imports another."""
