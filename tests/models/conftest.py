"""A tiny model of every family, all of whose weights are random: biases, norms and all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AlbertConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BartConfig,
    BertConfig,
    CamembertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    ModernBertConfig,
    MPNetConfig,
    MT5Config,
    Olmo2Config,
    OlmoConfig,
    PhiConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen3Config,
    RobertaConfig,
    SmolLM3Config,
    T5Config,
    XLMRobertaConfig,
)

from stillery.models.load_model import Loaded

Make = Callable[..., PreTrainedModel]
Save = Callable[[str, PreTrainedModel], Path]

_SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48}
_DISTILBERT_SIZES = {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 48}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
_WINDOW = {"local_attention": 4, "pad_token_id": 0}
_SEGMENTS_OF_ONE = {"type_vocab_size": 1}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A family as its own source code has it, told apart from what stillery's table says."""

    config: type[PreTrainedConfig]
    options: dict[str, Any]
    layers: str
    pooler: str = "classifier.dense."
    classifier: str = "classifier.out_proj."
    segments: bool = False


KINDS = {
    "bert": Kind(config=BertConfig, options=_SIZES, layers="bert.encoder.layer.",
                 pooler="bert.pooler.dense.", classifier="classifier.", segments=True),
    "roberta": Kind(config=RobertaConfig, options=_SIZES | _SEGMENTS_OF_ONE, layers="roberta.encoder.layer."),
    "camembert": Kind(config=CamembertConfig, options=_SIZES | _SEGMENTS_OF_ONE, layers="roberta.encoder.layer."),
    "modernbert": Kind(config=ModernBertConfig, options=_SIZES | _WINDOW | {"classifier_bias": True},
                       layers="model.layers.", pooler="head.dense.", classifier="classifier."),
    "xlm-roberta": Kind(config=XLMRobertaConfig, options=_SIZES | _SEGMENTS_OF_ONE, layers="roberta.encoder.layer."),
    "distilbert": Kind(config=DistilBertConfig, options=_DISTILBERT_SIZES, layers="distilbert.transformer.layer.",
                       pooler="pre_classifier.", classifier="classifier."),
    "mpnet": Kind(config=MPNetConfig, options=_SIZES, layers="mpnet.encoder.layer."),
    "electra": Kind(config=ElectraConfig, options=_SIZES | {"embedding_size": 16}, layers="electra.encoder.layer.",
                    segments=True),
    "albert": Kind(config=AlbertConfig, options=_SIZES | {"embedding_size": 16},
                   layers="albert.encoder.albert_layer_groups.", pooler="albert.pooler.", classifier="classifier.",
                   segments=True),
    "deberta-v2": Kind(config=DebertaV2Config, options=_SIZES | _RELATIVE, layers="deberta.encoder.layer.",
                       pooler="pooler.dense.", classifier="classifier."),
    "deberta-v2-conv": Kind(
        config=DebertaV2Config,
        options=_SIZES | _RELATIVE | {"conv_kernel_size": 3, "conv_act": "gelu", "norm_rel_ebd": "layer_norm",
                                      "position_buckets": 8, "share_att_key": True},
        layers="deberta.encoder.layer.", pooler="pooler.dense.", classifier="classifier."),
}  # fmt: skip


@pytest.fixture(scope="session")
def make() -> Make:
    """Build a classifier of a kind; other options replace the kind's."""
    return _building(AutoModelForSequenceClassification, 3)


@pytest.fixture(scope="session")
def make_tagger() -> Make:
    """Build a classifier of tokens of a kind; other options replace the kind's."""
    return _building(AutoModelForTokenClassification, 5)


def _building(auto: Any, labels: int) -> Make:
    def build(name: str, *, seed: int = 0, **options: Any) -> PreTrainedModel:
        kind = KINDS[name]
        defaults: dict[str, Any] = {"vocab_size": 99, "max_position_embeddings": 20}
        if "id2label" not in options:
            defaults["num_labels"] = labels
        config = kind.config(**defaults | kind.options | options)
        torch.manual_seed(seed)
        model: PreTrainedModel = auto.from_config(config).eval()
        # As they start, biases are all 0 and norms all 1: a copy that forgot them would not be noticed.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        return model

    return build


@pytest.fixture(scope="session", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="session")
def teacher(kind: Kind, make: Make, tokenizer: PreTrainedTokenizerBase) -> Loaded:
    """A classifier of each kind: 4 layers x 32, 4 heads, 3 labels; no test changes it."""
    name = next(name for name, known in KINDS.items() if known is kind)
    labels = {0: "bad", 1: "fair", 2: "good"}
    model = make(name, id2label=labels, label2id={label: index for index, label in labels.items()})
    return Loaded(model=model, tokenizer=tokenizer, name=f"teacher-{name}", missing=frozenset())


@pytest.fixture
def batch(teacher: Loaded) -> dict[str, Tensor]:
    """Three inputs of 9, 5 and 2 tokens, padded, with two segments."""
    pad = teacher.model.config.pad_token_id
    lengths = torch.tensor([[9], [5], [2]])
    mask = (torch.arange(9) < lengths).long()
    ids = torch.randint(5, 99, (3, 9), generator=torch.Generator().manual_seed(3))
    segments = (torch.arange(9) >= lengths // 2).long() * mask
    return {"input_ids": ids * mask + pad * (1 - mask), "attention_mask": mask, "token_type_ids": segments}


@pytest.fixture
def save(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> Save:
    """Save a model with MiniLM's tokenizer as a checkpoint folder."""

    def write(name: str, model: PreTrainedModel) -> Path:
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return tmp_path / name

    return write


_T5_SIZES = {"d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 4, "num_decoder_layers": 3, "num_heads": 4,
             "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6,
             "decoder_start_token_id": 0}  # fmt: skip
_BART_SIZES = {"d_model": 32, "encoder_layers": 4, "decoder_layers": 3, "encoder_attention_heads": 4,
               "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40}  # fmt: skip
_DECODER_SIZES = _SIZES | {"num_key_value_heads": 2, "bos_token_id": 3, "eos_token_id": 4, "pad_token_id": 4}

WRITERS: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "t5": (T5Config, _T5_SIZES),
    "t5-gated": (T5Config, _T5_SIZES | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": (MT5Config, _T5_SIZES | {"feed_forward_proj": "gated-gelu"}),
    "bart": (BartConfig, _BART_SIZES | {"max_position_embeddings": 20, "scale_embedding": True}),
    "gpt2": (GPT2Config, {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 20, "eos_token_id": 4}),
    "llama": (LlamaConfig, _DECODER_SIZES | {"head_dim": 6}),
    "qwen2": (Qwen2Config, _DECODER_SIZES | {"tie_word_embeddings": True}),
    "qwen3": (Qwen3Config, _DECODER_SIZES | {"head_dim": 10}),
    "mistral": (MistralConfig, _DECODER_SIZES | {"head_dim": 6, "sliding_window": None}),
    "gemma": (GemmaConfig, _DECODER_SIZES | {"head_dim": 6}),
    "olmo": (OlmoConfig, _DECODER_SIZES),
    "olmo2": (Olmo2Config, _DECODER_SIZES),
    "phi": (PhiConfig, _DECODER_SIZES | {"qk_layernorm": True}),
    "smollm3": (SmolLM3Config, _DECODER_SIZES | {"no_rope_layers": [1, 1, 0, 1]}),
}
"""Models that generate text: encoder-decoders of 4 + 3 layers, decoders of 4; the gated T5's head is its own."""


@pytest.fixture(scope="session")
def make_writer() -> Make:
    """Build a model that generates text; other options replace the kind's."""

    def build(name: str, *, seed: int = 0, **options: Any) -> PreTrainedModel:
        kind, defaults = WRITERS[name]
        config = kind(**{"vocab_size": 99} | defaults | options)
        torch.manual_seed(seed)
        auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        model: PreTrainedModel = auto.from_config(config).eval()
        if name == "t5-gated":
            # As in T5 1.1 and FLAN: the configuration is read as tied, the weights are not.
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
            model.all_tied_weights_keys.pop("lm_head.weight")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        return model

    return build


@pytest.fixture(scope="session", params=list(WRITERS))
def writer(request: pytest.FixtureRequest, make_writer: Make, tokenizer: PreTrainedTokenizerBase) -> Loaded:
    """A model that generates text, of each kind; no test changes it."""
    model = make_writer(request.param)
    return Loaded(model=model, tokenizer=tokenizer, name=f"writer-{request.param}", missing=frozenset())


def _padded(lengths: list[int], pad: int, seed: int) -> tuple[Tensor, Tensor]:
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, 99, mask.shape, generator=torch.Generator().manual_seed(seed))
    return ids * mask + pad * (1 - mask), mask


@pytest.fixture
def texts(writer: Loaded) -> dict[str, Tensor]:
    """Three texts of 9, 5 and 2 tokens, padded; for an encoder-decoder with labels of 4, 6 and 3 tokens."""
    config = writer.model.config
    ids, mask = _padded([9, 5, 2], int(config.pad_token_id or 0), 3)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if config.is_encoder_decoder:
        inputs["labels"] = _padded([4, 6, 3], -100, 4)[0]
    return inputs
