"""Model cards: what the hub reads in their header, and what stays as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from transformers import BertConfig, T5Config

from stillery.jobs.card import Facts, card, layer_counts
from stillery.jobs.card_usage import classification_usage, generation_notes, generation_tag
from stillery.jobs.config.settings import Distill, Finetune, resolve

METRICS = {
    "examples": 277,
    "split": "dev",
    "metrics": {"accuracy": 61.3718, "f1": 50.0},
    "intervals": {"accuracy": (55.5, 66.9)},
    "teacher_metrics": {"accuracy": 64.2599},
    "agreement": 80.5,
}


def facts(run: Finetune | Distill, **more: Any) -> Facts:
    given = {"data": "rte (277 dev)", "origin": (), "tag": "text-classification", "layers": "3", "paper": "A paper"}
    return Facts(**{"run": run, "usage": classification_usage()} | given | more)


def distilled(**more: Any) -> Distill:
    asked = resolve(Distill, {"teacher": "org/teacher", "task": "rte", "layers": 3, "method": "pkd"} | more)
    assert not asked.errors
    return asked.run


def test_the_hub_reads_where_a_model_is_from_and_how_good_it_is() -> None:
    found = ModelCard(card(facts(distilled()), METRICS))
    assert (found.data.library_name, found.data.pipeline_tag) == ("transformers", "text-classification")
    assert found.data.tags == ["stillery"] and found.data.base_model == "org/teacher"
    assert found.data.datasets == ["nyu-mll/glue"]
    assert [(one.metric_type, one.metric_value) for one in found.data.eval_results] == [("accuracy", 61.37), ("f1", 50)]
    first = found.data.eval_results[0]
    assert (first.dataset_type, first.dataset_config, first.dataset_split) == ("nyu-mll/glue", "rte", "dev")
    assert (first.task_type, first.dataset_name) == ("text-classification", "rte (277 dev)")
    assert found.data.model_name == "3-layer student, distilled with pkd"
    lines = found.content.splitlines()
    assert "# 3-layer student, distilled with pkd" in lines and "- Method: `pkd` (A paper)" in lines
    assert "| accuracy | 61.37 | 55.50 to 66.90 | 64.26 |" in lines and "| f1 | 50.00 | - | - |" in lines
    assert "Agreement with the teacher: 80.50%." in lines and lines[-1] == "```"


@pytest.mark.parametrize(
    ("more", "base"),
    [
        ({"init": "random"}, None),
        ({"init_from": "org/base"}, "org/base"),
        ({"init": "org/checkpoint", "layers": None}, "org/checkpoint"),
        ({"teacher": "minilm-l6"}, None),
        ({"teacher": "."}, None),
    ],
)
def test_the_base_model_is_a_name_on_the_hub_whose_weights_were_taken(more: dict[str, Any], base: str | None) -> None:
    assert ModelCard(card(facts(distilled(**more)), METRICS)).data.base_model == base


def test_files_of_a_users_own_are_no_data_set_of_the_hub(tmp_path: Path) -> None:
    own = resolve(Finetune, {"model": "org/base", "data": "d.csv"}).run
    found = ModelCard(card(facts(own, title="Fine-tuned classifier"), METRICS))
    assert found.data.datasets is None and found.data.eval_results is None and found.data.base_model == "org/base"
    assert "# Fine-tuned classifier" in found.content and "- Model: `org/base`" in found.content
    # Files in a folder are the named task's as far as their user says: nothing is claimed for the hub's own splits.
    folder = distilled(data_dir=str(tmp_path))
    assert ModelCard(card(facts(folder), METRICS)).data.eval_results is None
    unlabelled = {"metrics": {"agreement": 80.0}, "unlabelled": True}
    assert ModelCard(card(facts(distilled()), METRICS | unlabelled)).data.eval_results is None


def test_what_looks_like_a_template_or_a_header_stays_as_it_is() -> None:
    data = "{{ 7 * 7 }} {% raw %} <b> & --- # no"
    found = card(facts(distilled(prefix="{{ prefix }}"), data=data, notes=lambda _: ["{# gone #}"]), METRICS)
    assert (
        "- Data: {{ 7 * 7 }} {% raw %} &lt;b> & --- # no\n" in found
        and 'prefix = "{{ prefix }}"' in found
        and "\n{# gone #}\n" in found
    )
    assert ModelCard(found).data.eval_results[0].dataset_name == data


def test_a_custom_head_is_loaded_by_stillery() -> None:
    found = card(facts(distilled()), METRICS | {"custom_head": True})
    assert ModelCard(found).data.library_name == "stillery"
    assert "does not load as a plain checkpoint" in found and "load_student(" in found and "pipeline(" not in found


def test_tags_and_notes_of_models_that_generate_text() -> None:
    assert generation_tag("encoder-decoder", "wmt16-en-ro") == "translation"
    assert generation_tag("encoder-decoder", "dart") == generation_tag("encoder-decoder", None)
    assert generation_tag("encoder-decoder", None) == "text2text-generation"
    assert generation_tag("decoder", "wmt16-en-ro") == "text-generation"
    assert generation_notes({"metrics": {"bleu": 3.0}}) == []
    assert generation_notes({"metrics": {"accuracy": 3.0}, "no_label": 2}) == [
        "Texts that name no class, which count as wrong: 2."
    ]


def test_layers_are_counted_by_stack() -> None:
    assert layer_counts(BertConfig(num_hidden_layers=3)) == "3"
    assert layer_counts(T5Config(num_layers=3, num_decoder_layers=1)) == "3+1"
