"""Eight real sentences, MiniLM as the teacher, and what it shows of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from real_teacher import RealTeacher

from stillery.data.tasks.load_task import load_task
from stillery.data.tokens.collate import collate
from stillery.data.tokens.encode import tokenise
from stillery.losses import Mixed
from stillery.models.family import sizes
from stillery.models.load_model import load_classifier
from stillery.models.wanted_outputs import Wanted
from stillery.train.objective import Needs
from stillery.train.teacher import LiveTeacher


@pytest.fixture(scope="session")
def minilm(tokenizer) -> RealTeacher:
    sentences = load_task("rotten-tomatoes").train.take(np.arange(0, 64 * 100, 100))
    tokens = tokenise(sentences, tokenizer, 32)
    index = np.argsort(tokens.lengths, kind="stable")[8:24:2]
    batch = collate(sentences, tokens, index, 0, pad_to=1)
    torch.manual_seed(0)
    loaded = load_classifier("minilm-l6", labels=2)
    # A new head says next to nothing; this one is as sure of itself as a trained one.
    torch.nn.init.normal_(loaded.model.classifier.weight, std=1.0)
    mixed = Mixed(lam=0.3, partner=torch.arange(8).flip(0))
    layers = set(range(1, 7))
    needs: Needs = {None: Wanted(hidden={0} | layers, query=layers, key=layers, value=layers, feature={6})}
    live = LiveTeacher(loaded.model)
    shown = {"plain": live(batch.inputs, needs), "mixed": live(batch.inputs, needs, mixed)}
    return RealTeacher(loaded=loaded, sizes=sizes(loaded.model.config), batch=batch, mixed=mixed, shown=shown)
