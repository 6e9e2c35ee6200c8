"""Loading of sentence embedders: folders of sentence-transformers, and plain encoders."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from stillery.errors import UserError
from stillery.models.embedder import Layout, SentenceEmbedder
from stillery.models.load_model import Loaded, load_encoder
from stillery.models.model_folder import model_folder
from stillery.models.option_words import POOLINGS
from stillery.models.sentence_folder import read_dense, read_layout
from stillery.progress import say

__all__ = ["load_embedder", "with_pooling"]


def load_embedder(name: str) -> Loaded:
    """Load a sentence embedder; the token states of a plain encoder are averaged."""
    folder = Path(model_folder(name))
    layout = read_layout(folder, name)
    encoder = load_encoder(name)
    dense = read_dense(folder, name)
    width = int(encoder.model.config.hidden_size) * len((layout or Layout()).pooling)
    for one in dense:
        if one.linear.in_features != width:
            raise UserError(
                f"{name}: a dense module takes {one.linear.in_features} dimensions, and it is given {width}; copy the "
                "model again"
            )
        width = one.linear.out_features
    if layout is not None and layout.prompts[1] is not None:
        say(f"{name}: its prompt {layout.prompts[1]!r} is not put before texts; write it into them if it should be")
    model = SentenceEmbedder(encoder.model, layout or Layout(), dense)
    missing = frozenset(f"{model.base_model_prefix}.{key}" for key in encoder.missing)
    return dataclasses.replace(encoder, model=model.train(False), missing=missing)


def with_pooling(loaded: Loaded, pooling: str | None) -> Loaded:
    """Set the pooling of a plain encoder; raise UserError for a folder that states another one."""
    if pooling is None or not isinstance(loaded.model, SentenceEmbedder):
        return loaded
    model = loaded.model
    stated = "+".join(model.layout.pooling)
    if model.layout.stated and stated != pooling:
        raise UserError(f"--pooling {pooling}: the pooling of {loaded.name} is {stated}, by its files; leave it out")
    assert pooling in POOLINGS
    model.layout = dataclasses.replace(model.layout, pooling=(pooling,))
    return loaded
