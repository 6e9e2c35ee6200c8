"""What `stillery layers` shows is what the model is made of."""

from __future__ import annotations

from typing import Any

from stillery.models.describe import describe
from stillery.models.load_model import Loaded

VOCABULARY = 30522


def test_rows_hold_every_parameter_of_embedding_and_layers(teacher: Loaded, kind: Any, make: Any, save: Any) -> None:
    model = make(teacher.name.removeprefix("teacher-"), vocab_size=VOCABULARY)
    folder = str(save("model", model))
    found = describe(folder)
    (stack,) = found["stacks"]
    rows = stack["rows"]
    assert (found["model"], found["type"]) == (folder, model.config.model_type)
    assert found["vocabulary"] == VOCABULARY
    assert found["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert [stack[key] for key in ("name", "layers", "width", "heads", "inner")] == ["encoder", 4, 32, 4, 48]
    assert [row["layer"] for row in rows] == [0, 1, 2, 3, 4]
    counts = {name: parameter.numel() for name, parameter in model.named_parameters()}
    assert found["parameters"] == sum(counts.values())
    of_layers = sum(count for name, count in counts.items() if name.startswith(kind.layers))
    of_embedding = sum(count for name, count in counts.items() if ".embedding" in name)
    assert sum(row["parameters"] for row in rows[1:]) == of_layers
    assert rows[0]["parameters"] == of_embedding
    if model.config.model_type == "albert":
        assert [row["parameters"] for row in rows[1:]] == [of_layers, 0, 0, 0]
        assert len({row["name"] for row in rows[1:]}) == 1
    else:
        # ModernBERT's first layer has no norm before its attention.
        bare = 32 if model.config.model_type == "modernbert" else 0
        each = (of_layers + bare) // 4
        assert [row["parameters"] for row in rows[1:]] == [each - bare, each, each, each]
        assert [row["name"][-1] for row in rows[1:]] == ["0", "1", "2", "3"]


def test_albert_with_two_groups(make: Any, save: Any) -> None:
    rows = describe(str(save("model", make("albert", vocab_size=VOCABULARY, num_hidden_groups=2))))["stacks"][0]["rows"]
    assert [row["name"][-1] for row in rows[1:]] == ["0", "0", "1", "1"]
    assert [row["parameters"] > 0 for row in rows[1:]] == [True, False, True, False]


def test_an_encoder_has_no_labels() -> None:
    found = describe("minilm-l6")
    assert found["labels"] == []
    assert found["parameters"] == 22_713_216
    assert [found["stacks"][0][key] for key in ("layers", "width", "heads", "inner")] == [6, 384, 12, 1536]
