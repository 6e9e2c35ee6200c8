from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import (
    AlbertConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    LlamaConfig,
    MPNetConfig,
    PretrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    T5Config,
)

from stillery.errors import UserError
from stillery.evaluation.cost import cost, flops_per_example, latency_ms, megabytes, parameters

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
FAMILIES = [
    BertConfig(**SIZES),
    RobertaConfig(**SIZES),
    DistilBertConfig(vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=64),
    MPNetConfig(**SIZES),
    ElectraConfig(embedding_size=16, **SIZES),
    AlbertConfig(embedding_size=16, **SIZES),
    DebertaV2Config(relative_attention=True, pos_att_type=["p2c", "c2p"], **SIZES),
]
IDS = {"vocab_size": 60, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 2}
HALF = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
HALVES = {f"{half}_{name}": size for half in ("encoder", "decoder") for name, size in HALF.items()}
LLAMA = SIZES | IDS | {"num_key_value_heads": 1, "max_position_embeddings": 2**20}
T5 = T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, **IDS)
WRITERS = [
    (T5, 203776, 1157376),
    (BartConfig(d_model=16, max_position_embeddings=64, **HALVES, **IDS), 203776, 1157376),
    (GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64, **IDS), 121856, 608256),
    (LlamaConfig(**LLAMA), 97280, 506880),
]


def writer(config: PretrainedConfig) -> PreTrainedModel:
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    return auto.from_config(config)


def inputs(length: int = 6, count: int = 3) -> list[dict[str, torch.Tensor]]:
    ids = torch.arange(1, length + 1)[None]
    one = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    return [one] * count


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_flops_of_a_bert_counted_by_hand(attention: str) -> None:
    model = BertForSequenceClassification(BertConfig(num_labels=3, attn_implementation=attention, **SIZES))
    tokens, width, inner, layers = 8, 16, 32, 2
    maps = 4 * 2 * tokens * width * width  # query, key, value, output
    products = 2 * 2 * tokens * tokens * width  # scores, and their mix of the values
    feed_forward = 2 * 2 * tokens * width * inner
    pooler, classifier = 2 * width * width, 2 * width * 3
    assert flops_per_example(model, tokens) == layers * (maps + products + feed_forward) + pooler + classifier == 74336


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.model_type)
def test_attention_is_counted_in_every_family(config: PretrainedConfig) -> None:
    model = AutoModelForSequenceClassification.from_config(config).train()
    eight, sixteen, more = (flops_per_example(model, length) for length in (8, 16, 24))
    # What grows with the square of the length n is attention's two products, 4 n^2 width per layer, and nothing else.
    assert more - 2 * sixteen + eight == 2 * 4 * 16 * (24**2 - 2 * 16**2 + 8**2)
    assert model.training
    assert latency_ms(model, inputs(), warm_up=1) > 0
    # What is kept of a measured pass must not stand in the way of training.
    model(**{name: tensor for name, tensor in inputs()[0].items() if name != "token_type_ids"}).logits.sum().backward()


@pytest.mark.parametrize(("config", "short", "long"), WRITERS, ids=["t5", "bart", "gpt2", "llama"])
def test_flops_of_models_that_write_text(config: PretrainedConfig, short: int, long: int) -> None:
    model = writer(config)
    assert flops_per_example(model, 8) == short
    assert flops_per_example(model, 33) == long


@pytest.mark.parametrize("config", [T5, LlamaConfig(**LLAMA)], ids=["t5", "llama"])
def test_flops_of_long_texts_need_no_memory(config: PretrainedConfig) -> None:
    """The scores of a million tokens would take terabytes."""
    model, n = writer(config), 2**20
    one, two = flops_per_example(model, 1), flops_per_example(model, 2)
    squared = 4 * 16 * 2 * (3 if config.is_encoder_decoder else 1)  # scores and their mix, for each attention
    linear = two - one - 3 * squared
    assert flops_per_example(model, n) == squared * n**2 + linear * n + (one - squared - linear)
    assert all(tensor.device.type == "cpu" and tensor.requires_grad for tensor in model.parameters())


def test_flops_of_a_model_that_looks_at_its_numbers_are_counted_too() -> None:
    model = BertForSequenceClassification(BertConfig(**SIZES))
    before = flops_per_example(model, 8)
    model.classifier.register_forward_hook(lambda _, __, logits: logits if logits.sum().item() else None)
    assert flops_per_example(model, 8) == before


def test_shared_tensors_are_counted_once() -> None:
    first = torch.nn.Linear(3, 3, bias=False)
    second = torch.nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    assert parameters(torch.nn.Sequential(first, second)) == 9
    one, four = (
        AutoModelForSequenceClassification.from_config(AlbertConfig(**SIZES | {"num_hidden_layers": n})) for n in (1, 4)
    )
    assert parameters(one) == parameters(four)


def test_megabytes_of_the_weights_only(tmp_path: Path) -> None:
    (tmp_path / "model-1.safetensors").write_bytes(bytes(1_500_000))
    (tmp_path / "model-2.safetensors").write_bytes(bytes(500_000))
    (tmp_path / "tokenizer.json").write_bytes(bytes(700_000))
    assert megabytes(tmp_path) == 2.0
    with pytest.raises(UserError, match="safetensors weights in"):
        megabytes(tmp_path / "elsewhere")


def test_latency_restores_threads_and_mode() -> None:
    model = BertForSequenceClassification(BertConfig(**SIZES)).train()
    before = torch.get_num_threads()
    seen = set()
    model.register_forward_hook(lambda *_: seen.add((torch.get_num_threads(), model.training)))
    torch.set_num_threads(2)
    try:
        assert latency_ms(model, inputs()) > 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {(1, False)}
    assert model.training
    with pytest.raises(UserError, match="no examples"):
        latency_ms(model, [])


def test_threads_are_restored_after_an_error() -> None:
    model = BertForSequenceClassification(BertConfig(**SIZES))
    before = torch.get_num_threads()
    with pytest.raises(IndexError):
        latency_ms(model, [{"input_ids": torch.tensor([[1000]])}], threads=before + 1)
    assert torch.get_num_threads() == before


def test_cost_beside_a_teacher_and_alone(tmp_path: Path) -> None:
    student = BertForSequenceClassification(BertConfig(**SIZES))
    student.save_pretrained(tmp_path)
    teacher = BertForSequenceClassification(BertConfig(**SIZES | {"num_hidden_layers": 12}))
    turns: list[str] = []
    student.register_forward_hook(lambda *_: turns.append("student"))
    teacher.register_forward_hook(lambda *_: turns.append("teacher"))
    found = cost(student, tmp_path, inputs(count=4), length=10, train_seconds=1.5, teacher=teacher)
    assert turns[:18] == ["student", "teacher"] * 9
    assert list(found) == [
        "parameters",
        "flops",
        "flops_length",
        "megabytes",
        "latency_ms",
        "speedup",
        "train_seconds",
        "teacher_parameters",
        "teacher_latency_ms",
    ]
    assert found["teacher_parameters"] > found["parameters"]
    assert found["flops"] == flops_per_example(student, 10)
    assert found["speedup"] == found["teacher_latency_ms"] / found["latency_ms"] > 1
    alone = cost(student, tmp_path, inputs(), length=10, train_seconds=1.5)
    assert alone["speedup"] is None
    assert "teacher_parameters" not in alone
    assert alone["megabytes"] == pytest.approx(4 * parameters(student) / 1e6, rel=0.3)
