"""Texts as token ids: encode, cache, batch, pad."""
