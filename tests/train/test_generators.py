"""Training of models that generate text: T5 and BART, GPT-2 and Llama."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from tiny_writers import FAMILIES, Lesson, batch_of, numbers, texts, writer
from transformers import PreTrainedModel

from stillery import declare, methods
from stillery.errors import UserError
from stillery.losses import BatchFacts, Mixed, stage_terms
from stillery.models.family import stack_sizes
from stillery.models.wanted_outputs import Wanted
from stillery.overrides import Switches, switched
from stillery.parts import divergence as divergences
from stillery.parts import represent_relations as relations
from stillery.recipe import Clock, Prediction, Recipe, Stage
from stillery.stacks import on_stacks
from stillery.train import checkpoint
from stillery.train.forward_pass import outputs_of
from stillery.train.loop import Sources, accelerator_for, train
from stillery.train.optimiser import adamw
from stillery.train.recipe_checks import check_stages
from stillery.train.settings import Training
from stillery.train.step_plan import pairs_of
from stillery.train.teacher import LiveTeacher
from stillery.words import words

PLAIN = declare.of_module("divergence", divergences.__name__)

STRATEGIES = ("layer-forward", "layer-reverse", "layer-all-to-one", "layer-random")
METHODS: dict[str, dict[str, Any]] = {
    "none": {},
    "kd": {},
    **{name: {} for name in STRATEGIES},
    "rail-kd": {"width": 8},
    "rail-kd-concat": {"width": 8},
    "l-ild": {"layer_share": 1, "least_steps": 1},
    "u-ild": {"layer_share": 1, "least_steps": 1},
    "cr-ild": {"layer_share": 1, "least_steps": 1, "consistency_weight": 0.2},
    "emd-ild": {"layer_share": 1, "least_steps": 1},
    "tinybert": {"layer_share": 1, "least_steps": 1},
    "minilm": {"layer_share": 1, "least_steps": 1},
    "minilm-v2": {"layer_share": 1, "least_steps": 1},
    "bert-emd": {},
    "distilbert": {},
    "ckd-context": {},
}
AT_ONCE = ("bert-emd", "ckd-context", "cr-ild")
"""Methods of which some term of models this small may give way to others."""
POOLED = ("pkd", "alp-kd", "ckd-combine", "ild-top")
BATCHWISE = ("bert-emd", "emd-ild", "cr-ild")


def recipe_of(name: str) -> Recipe:
    recipe = methods.build(name, METHODS.get(name))
    return switched(recipe, Switches(represent="pool"), name) if name in POOLED else recipe


def run(lesson: Lesson, data, folder: Path, resume: bool = False, **settings: Any) -> list[dict[str, Any]]:
    """Train and give what was logged of each step."""
    chosen = Training(**{"epochs": 4, "batch_size": 8, "lr": 1e-2, "log_every": 1, "warmup": 0.0} | settings)
    folder.mkdir(parents=True, exist_ok=True)
    train(
        lesson.objective, Sources(data=data, teacher=lesson.teacher), chosen, accelerator=accelerator_for("fp32"),
        folder=folder, resume=resume,
    )  # fmt: skip
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    # Guards write what they measure to the log as well.
    return [line for line in lines if line["event"] == "train"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", [*METHODS, *POOLED])
def test_every_method_trains(name: str, family: str, tmp_path: Path) -> None:
    student, teacher = writer(family, width=8, heads=2, seed=1), writer(family, layers=4, seed=2)
    lesson, data = Lesson(recipe_of(name), student, teacher), texts(family)
    configs = student.config, teacher.config
    check_stages(lesson.recipe.stages, *map(stack_sizes, configs), Clock(), configs)
    logged = run(lesson, data, tmp_path)
    for stage in lesson.recipe.stages:
        steps = [event for event in logged if event["stage"] == stage.name]
        # Consistency is ramped up, so it is no measure of progress.
        first, last = ({k: v for k, v in steps[at]["terms"].items() if "consistency" not in k} for at in (0, -1))
        assert len(steps) > 1 and sum(last.values()) < sum(first.values())
        if name not in AT_ONCE:
            assert {term for term in first if last[term] >= first[term]} == set()


@pytest.mark.parametrize("heads", [4, 6])
def test_relations_of_shared_keys_have_as_many_heads_as_there_are_keys(heads: int) -> None:
    student, teacher = (writer("llama", width=24, heads=heads, layers=layers, seed=layers) for layers in (2, 4))
    lesson = Lesson(methods.build("minilm-v2"), student, teacher)
    sizes, configs = [stack_sizes(one.config) for one in (student, teacher)], (student.config, teacher.config)
    check_stages(lesson.recipe.stages, *sizes, Clock(), configs)
    said = Lesson(methods.build("minilm-v2", {"relation_heads": heads // 2}), student, teacher)
    batch = batch_of(texts("llama"))
    assert numbers(lesson.losses(batch).terms) == numbers(said.losses(batch).terms)
    stages = Lesson(methods.build("minilm-v2", {"relation_heads": 7}), student, teacher).recipe.stages
    with pytest.raises(UserError, match=r"7 relation heads do not divide 12, .* the student's key; .* divisor of 12"):
        check_stages(stages, *sizes, Clock(), configs)


def states_of(model: PreTrainedModel, batch) -> dict[str, list[np.ndarray]]:
    """Hidden states of each stack as transformers itself gives them."""
    with torch.no_grad():
        out = model(**batch.inputs, output_hidden_states=True)
    kinds = ("encoder", "decoder") if model.config.is_encoder_decoder else ("decoder",)
    names = [f"{kind}_hidden_states" for kind in kinds] if len(kinds) > 1 else ["hidden_states"]
    found = {kind: getattr(out, name) for kind, name in zip(kinds, names, strict=True)}
    return {kind: [state.double().numpy() for state in states] for kind, states in found.items()}


def masks_of(batch) -> dict[str, np.ndarray]:
    real = batch.inputs["attention_mask"].numpy().astype(bool)
    return {"encoder": real, "decoder": batch.inputs["labels"].numpy() != -100}


def scored_logits(model: PreTrainedModel, batch) -> tuple[np.ndarray, np.ndarray]:
    """The logits that predict a scored token, [scored, vocabulary], and those tokens."""
    with torch.no_grad():
        logits = model(**batch.inputs).logits.double()
    labels = batch.inputs["labels"]
    if not model.config.is_encoder_decoder:
        logits, labels = logits[:, :-1], labels[:, 1:]
    scored = labels != -100
    return logits[scored].numpy(), labels[scored].numpy()


def token_kl(student: np.ndarray, teacher: np.ndarray, temperature: float) -> float:
    ours, theirs = (log_softmax(side / temperature, -1) for side in (student, teacher))
    return float((np.exp(theirs) * (theirs - ours)).sum(-1).mean() * temperature**2)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_layer_forward_of_both_stacks_by_numpy(family: str) -> None:
    student, teacher = writer(family, layers=3, seed=1), writer(family, layers=8, seed=2)
    batch = batch_of(texts(family), pad_to=4)
    lesson = Lesson(methods.build("layer-forward", {"temperature": 2}), student, teacher)
    losses = lesson.losses(batch)
    ours, theirs, masks = states_of(student, batch), states_of(teacher, batch), masks_of(batch)
    expected = {}
    for stack in ("encoder", "decoder"):
        pairs = [(0, 0), (1, 3), (2, 6), (3, 8)]
        squares = [((ours[stack][i] - theirs[stack][j]) ** 2)[masks[stack]].mean() for i, j in pairs]
        expected[f"{stack}_hidden"] = sum(squares)
    (logits, targets), (teacher_logits, _) = scored_logits(student, batch), scored_logits(teacher, batch)
    expected["hard"] = -log_softmax(logits, -1)[np.arange(len(targets)), targets].mean()
    expected["soft"] = token_kl(logits, teacher_logits, 2.0)
    assert numbers(losses.terms) == pytest.approx(expected, rel=1e-5)
    total = expected["hard"] + expected["soft"] + 3 * (expected["encoder_hidden"] + expected["decoder_hidden"])
    assert losses.total.item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_layer_forward_of_a_decoder_leaves_the_embedding_out(family: str) -> None:
    student, teacher = writer(family, seed=1), writer(family, layers=4, seed=2)
    batch = batch_of(texts(family), pad_to=4)
    terms = Lesson(methods.build("layer-forward"), student, teacher).losses(batch).terms
    real = batch.inputs["attention_mask"].numpy().astype(bool)
    ours, theirs = states_of(student, batch)["decoder"], states_of(teacher, batch)["decoder"]
    expected = sum(((ours[i] - theirs[j]) ** 2)[real].mean() for i, j in ((1, 2), (2, 4)))
    assert terms["hidden"].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", words("token_divergence"))
def test_predictions_are_matched_on_scored_tokens(name: str, family: str) -> None:
    student, teacher = writer(family, seed=1), writer(family, seed=2)
    batch = batch_of(texts(family), pad_to=4)
    soft = Prediction(divergence=PLAIN[name], temperature=2.0, square=name != "js", weight=1.0)
    terms = Lesson(Recipe(stages=(Stage(prediction=soft),)), student, teacher).losses(batch).terms
    (logits, targets), (teacher_logits, _) = scored_logits(student, batch), scored_logits(teacher, batch)
    rows = torch.from_numpy(logits), torch.from_numpy(teacher_logits)
    assert terms["soft"].item() == pytest.approx(PLAIN[name](*rows, 2.0, name != "js").item(), rel=1e-5)
    hard = -log_softmax(logits, -1)[np.arange(len(targets)), targets].mean()
    assert terms["hard"].item() == pytest.approx(hard, rel=1e-5)
    if name == "kl":
        assert terms["soft"].item() == pytest.approx(token_kl(logits, teacher_logits, 2.0), rel=1e-5)
        # A divergence of the user's own gets the scored rows.
        own = replace(soft, divergence=lambda ours, theirs, temperature, square: PLAIN["kl"](ours, theirs, 2.0, True))
        again = Lesson(Recipe(stages=(Stage(prediction=own),)), student, teacher).losses(batch).terms
        assert again["soft"].item() == pytest.approx(terms["soft"].item(), rel=1e-5)


def maps_kl(student: torch.Tensor, teacher: torch.Tensor, mask: np.ndarray) -> float:
    """KL(teacher || student) of attention maps [batch, heads, tokens, keys], mean over heads and real tokens."""
    ours, theirs = student.double().numpy(), teacher.double().numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(theirs > 0, theirs * (np.log(theirs) - np.log(ours)), 0.0).sum(-1)
    return float(terms.transpose(0, 2, 1)[mask].mean())


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_attention_of_encoder_decoder_and_between_them(family: str) -> None:
    student, teacher = writer(family, seed=1, eager=True), writer(family, layers=4, seed=2, eager=True)
    batch = batch_of(texts(family), pad_to=4)
    terms = Lesson(methods.build("l-ild"), student, teacher, cross_attention=True).losses(batch).terms
    assert set(terms) == {
        "encoder_attention", "encoder_hidden", "decoder_attention", "cross_attention", "decoder_hidden"
    }  # fmt: skip
    with torch.no_grad():
        ours, theirs = (model(**batch.inputs, output_attentions=True) for model in (student, teacher))
    masks = masks_of(batch)
    for term, stack in (("encoder", "encoder"), ("decoder", "decoder"), ("cross", "decoder")):
        last = [getattr(out, f"{term}_attentions")[-1] for out in (ours, theirs)]
        assert terms[f"{term}_attention"].item() == pytest.approx(maps_kl(*last, masks[stack]), rel=1e-4)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_attention_of_a_decoder_is_causal(family: str) -> None:
    student, teacher = writer(family, seed=1, eager=True), writer(family, layers=4, seed=2, eager=True)
    batch = batch_of(texts(family), pad_to=4)
    terms = Lesson(methods.build("minilm"), student, teacher).losses(batch).terms
    with torch.no_grad():
        last = [model(**batch.inputs, output_attentions=True).attentions[-1] for model in (student, teacher)]
    real = batch.inputs["attention_mask"].numpy().astype(bool)
    assert terms["attention"].item() == pytest.approx(maps_kl(*last, real), rel=1e-4)


def test_attention_on_relation_heads() -> None:
    """Where T5-small has 8 heads and T5-base 12: queries and keys of all heads are merged and cut anew."""
    student, teacher = writer("t5", heads=4, seed=1), writer("t5", layers=4, heads=6, seed=2)
    batch, configs = batch_of(texts("t5"), pad_to=4), (student.config, teacher.config)
    lesson = Lesson(
        methods.build("l-ild", {"relation_heads": 12, "hidden_weight": 0}), student, teacher, which="decoder",
        cross_attention=True,
    )  # fmt: skip
    check_stages(lesson.recipe.stages, *map(stack_sizes, configs), Clock(), configs)
    terms = lesson.losses(batch).terms
    mask = masks_of(batch)["decoder"]
    for term, names in (("decoder", ("query", "key")), ("cross", ("cross_query", "cross_key"))):
        maps = []
        for model, layer in ((student, 2), (teacher, 4)):
            wanted = Wanted(**{name: {layer} for name in names})
            shown = outputs_of(model, batch.inputs, {"decoder": wanted}).decoder
            query, key = (getattr(shown, name)[layer].detach().double() for name in names)
            query, key = (part.unflatten(-1, (12, -1)).transpose(1, 2) for part in (query, key))
            scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
            real = shown.mask if term == "decoder" else shown.cross_mask
            keys = real[:, None, None, :].bool().expand_as(scores)
            seen = keys.tril() if term == "decoder" else keys
            maps.append(scores.masked_fill(~seen, -torch.inf).softmax(-1))
        assert terms[f"{term}_attention"].item() == pytest.approx(maps_kl(*maps, mask), rel=1e-4)


@pytest.mark.parametrize("family", ["t5", "llama"])
@pytest.mark.parametrize("name", [*METHODS, *POOLED])
def test_padding_changes_nothing_and_parts_add_up(name: str, family: str) -> None:
    """However long a batch is padded, and, where a method does not look at the whole batch, however it is cut."""
    student, teacher, data = writer(family, width=8, seed=1), writer(family, layers=4, seed=2), texts(family, 12)
    lesson, everything = Lesson(recipe_of(name), student, teacher), np.arange(12)
    for stage in range(len(lesson.recipe.stages)):
        clock = Clock(stage=stage, stage_step=1, stage_steps=2)
        with torch.no_grad():
            narrow = lesson.losses(batch_of(data), clock=clock).terms
            wide = lesson.losses(batch_of(data, pad_to=24), clock=clock).terms
            assert numbers(wide) == pytest.approx(numbers(narrow), rel=2e-4, abs=1e-6)
            if name in BATCHWISE:
                continue
            parts: list[dict[str, float]] = []
            for part in np.split(everything, [1, 4, 9]):
                share = {rows: n / data.rows(everything)[rows] for rows, n in data.rows(part).items()}
                parts.append(numbers(lesson.losses(batch_of(data, part), share, clock=clock).terms))
        whole = {term: sum(part[term] for part in parts) for term in narrow}
        assert whole == pytest.approx(numbers(narrow), rel=2e-4, abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_counted_before_there_are_tensors(family: str) -> None:
    data, index = texts(family, 12), np.array([3, 7, 1, 10])
    drawn = (0.4, [1, 2, 3, 0])
    counted, batch = data.rows(index, drawn), batch_of(data, index, 8)
    mixed = Mixed(lam=drawn[0], partner=torch.tensor(drawn[1]))
    student = writer(family)
    for prefix, shown in (
        ("", outputs_of(student, batch.inputs, {})),
        ("mixed ", outputs_of(student, batch.inputs, {}, mixed)),
    ):
        stacks = {"": shown.encoder, "decoder ": shown.decoder}
        for name, stack in stacks.items():
            assert (stack is None) == (f"{prefix}{name}tokens" not in counted)
            if stack is not None:
                lengths = stack.mask.sum(1)
                assert counted[f"{prefix}{name}tokens"] == lengths.sum()
                assert counted[f"{prefix}{name}pairs"] == (lengths**2).sum()
        after = [(row.sum() * (row.sum() + 1) // 2).item() for row in shown.decoder.mask]
        assert counted[f"{prefix}causal pairs"] == sum(after)
        if shown.encoder is not None:
            crossed = shown.encoder.mask.sum(1) * shown.decoder.mask.sum(1)
            assert counted[f"{prefix}cross pairs"] == crossed.sum()
    assert counted["targets"] == (outputs_of(student, batch.inputs, {}).targets != -100).sum()
    assert counted["examples"] == 4


@pytest.mark.parametrize("name", ["layer-forward", "l-ild", "tinybert", "cr-ild"])
def test_a_start_of_padding_is_no_row_of_the_layers_if_it_is_dropped(name: str) -> None:
    """However a batch is padded and cut; labels and predictions are of the same tokens as before."""
    student, teacher = writer("t5", seed=1), writer("t5", layers=4, seed=2)
    data, everything = replace(texts("t5", 8), drop_start=True), np.arange(8)
    kept, lesson = (Lesson(recipe_of(name), student, teacher, drop_start=drop) for drop in (False, True))
    with torch.no_grad():
        whole = numbers(lesson.losses(batch_of(data)).terms)
        assert numbers(lesson.losses(batch_of(data, pad_to=24)).terms) == pytest.approx(whole, rel=2e-4, abs=1e-6)
        before = numbers(kept.losses(batch_of(data)).terms)
        if name != "cr-ild":
            share = [{rows: n / data.rows(everything)[rows] for rows, n in data.rows(part).items()}
                     for part in (everything[:3], everything[3:])]  # fmt: skip
            parts = [numbers(lesson.losses(batch_of(data, part), each).terms)
                     for part, each in zip((everything[:3], everything[3:]), share, strict=True)]  # fmt: skip
            assert {term: parts[0][term] + parts[1][term] for term in whole} == pytest.approx(whole, rel=2e-4, abs=1e-6)
    changed = {term for term, value in whole.items() if value != pytest.approx(before[term], rel=1e-6)}
    assert changed == {term for term in whole if term.startswith("decoder")}


def test_what_is_left_when_the_start_is_dropped() -> None:
    student, teacher = writer("t5", seed=1), writer("t5", seed=2)
    batch = batch_of(texts("t5", 6))
    term = Lesson(methods.build("layer-forward"), student, teacher, drop_start=True).losses(batch).terms
    states = [model(**batch.inputs, output_hidden_states=True).decoder_hidden_states for model in (student, teacher)]
    real = batch.inputs["labels"] != -100
    real[:, 0] = False
    expected = sum((ours - theirs).square()[real].mean() for ours, theirs in zip(*states, strict=True))
    assert term["decoder_hidden"].item() == pytest.approx(expected.item(), rel=1e-5)
    counts = replace(texts("t5", 6), drop_start=True).rows(np.arange(6))
    assert counts["decoder tokens"] == real.sum() and counts["targets"] == real.sum() + 6


@pytest.mark.parametrize(
    ("name", "family"),
    [("none", "llama"), ("kd", "t5"), ("layer-forward", "t5"), ("layer-forward", "gpt2"), ("tinybert", "bart")],
)
def test_accumulating_4_times_8_equals_32_at_once(name: str, family: str, tmp_path: Path) -> None:
    data, finished, logs = texts(family, 64), [], []
    for size, accumulate in ((32, 1), (8, 4)):
        student, teacher = writer(family, width=8, seed=1), writer(family, layers=4, seed=2)
        cross = {"cross_attention": True} if name == "tinybert" else {}
        lesson = Lesson(recipe_of(name), student, teacher.double(), **cross)
        # A softmax does not see a key's bias: its gradient is rounding, which Adam scales up, so let that be small.
        lesson.objective.double()
        logs.append(run(lesson, data, tmp_path / str(size), batch_size=size, accumulate=accumulate, epochs=2, lr=1e-3))
        finished.append(lesson.objective.state_dict())
    for tensor, value in finished[0].items():
        torch.testing.assert_close(finished[1][tensor], value, atol=2e-9, rtol=0, msg=tensor)
    for one, other in zip(*logs, strict=True):
        assert other["terms"] == pytest.approx(one["terms"], rel=1e-5, abs=1e-6)


def test_prompts_are_never_scored() -> None:
    student, teacher, data = writer("gpt2", seed=1), writer("gpt2", seed=2), texts("gpt2", 6)
    batch = batch_of(data, pad_to=8)
    shown = outputs_of(student, batch.inputs, {})
    stage = methods.build("kd").stages[0]
    leaf = replace(shown, logits=shown.logits.detach().requires_grad_())
    terms = stage_terms(
        stage, [], {"plain": leaf}, {"plain": outputs_of(teacher, batch.inputs, {})}, BatchFacts(kind="text"), Clock()
    )
    slopes = torch.autograd.grad(terms["hard"] + terms["soft"], leaf.logits)[0].abs().sum(-1) > 0
    for row, (prompt, whole) in enumerate(zip(data.tokens.prompt_lengths, data.tokens.decoder_lengths, strict=True)):
        # The last token of the prompt predicts the first of the target.
        assert slopes[row].nonzero().flatten().tolist() == list(range(prompt - 1, whole - 1))


@pytest.mark.parametrize("family", ["t5", "gpt2"])
@pytest.mark.parametrize("pairing", words("pairing"))
def test_every_pairing_on_every_stack(pairing: str, family: str) -> None:
    student, teacher = writer(family, width=8, seed=1), writer(family, layers=4, seed=2)
    recipe = switched(methods.build("layer-forward"), Switches(pair=pairing), "layer-forward")
    lesson, configs = Lesson(recipe, student, teacher), (student.config, teacher.config)
    check_stages(lesson.recipe.stages, *map(stack_sizes, configs), Clock(), configs)
    losses = lesson.losses(batch_of(texts(family)))
    losses.total.backward()
    stacks = stack_sizes(student.config)
    assert len(losses.terms) == 2 + len(stacks) and torch.isfinite(losses.total)
    modules = [student.base_model.get_submodule(name) for name in stacks] if len(stacks) > 1 else [student]
    assert all(any(weight.grad is not None for weight in module.parameters()) for module in modules)


def test_both_stacks_are_mixed_alike() -> None:
    student, batch = writer("t5", seed=1), batch_of(texts("t5"), pad_to=4)
    needs = {stack: Wanted(hidden={0, 2}) for stack in ("encoder", "decoder")}
    mixed = Mixed(lam=0.3, partner=torch.arange(8).flip(0))
    plain, changed = outputs_of(student, batch.inputs, needs), outputs_of(student, batch.inputs, needs, mixed)
    for stack in ("encoder", "decoder"):
        before, after = plain.stack(stack), changed.stack(stack)
        torch.testing.assert_close(after.hidden[0], mixed(before.hidden[0]))
        assert torch.equal(after.mask, before.mask | before.mask.flip(0))
    alone = outputs_of(student, batch.inputs, needs, Mixed(lam=1.0, partner=mixed.partner))
    for stack in ("encoder", "decoder"):
        real = plain.stack(stack).mask.bool()
        torch.testing.assert_close(alone.stack(stack).hidden[2][real], plain.stack(stack).hidden[2][real])


def test_cr_ild_without_mixing_is_l_ild() -> None:
    student, teacher, batch = writer("t5", seed=1), writer("t5", layers=4, seed=2), batch_of(texts("t5"))
    alone = Mixed(lam=1.0, partner=torch.arange(8))
    lesson = Lesson(methods.build("cr-ild"), student, teacher, which="decoder")
    found = numbers(lesson.losses(batch, mixed=alone).terms)
    expected = numbers(Lesson(methods.build("l-ild"), student, teacher, which="decoder").losses(batch).terms)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    consistency = {name: value for name, value in found.items() if name not in expected}
    assert set(consistency) == {"decoder_consistency_attention", "decoder_consistency_hidden"}
    assert max(consistency.values()) < 1e-6


@pytest.mark.parametrize("normalise", ["none", "token", "joint"])
@pytest.mark.parametrize("raw_last", [False, True])
def test_normalised_states_of_t5(normalise: str, raw_last: bool) -> None:
    student, teacher, batch = writer("t5", seed=1), writer("t5", layers=4, seed=2), batch_of(texts("t5"), pad_to=4)
    recipe = methods.build("layer-forward", {"normalise": normalise, "raw_last": raw_last})
    terms = Lesson(recipe, student, teacher).losses(batch).terms

    def states(model: PreTrainedModel, stack: str) -> list[np.ndarray]:
        kept = []
        norm = getattr(model, stack).final_layer_norm
        handle = norm.register_forward_pre_hook(lambda _, args: kept.append(args[0].detach().double().numpy()))
        found = states_of(model, batch)[stack]
        handle.remove()
        if raw_last:
            found[-1] = kept[0]
        return [normalised(state[masks_of(batch)[stack]]) for state in found]

    def normalised(tokens: np.ndarray) -> np.ndarray:
        if normalise == "none":
            return tokens
        axis = -1 if normalise == "token" else None
        mean, variance = tokens.mean(axis, keepdims=True), tokens.var(axis, keepdims=True)
        return (tokens - mean) / np.sqrt(variance + 1e-5)

    for stack in ("encoder", "decoder"):
        ours, theirs = states(student, stack), states(teacher, stack)
        expected = sum(((ours[i] - theirs[j]) ** 2).mean() for i, j in ((0, 0), (1, 2), (2, 4)))
        assert terms[f"{stack}_hidden"].item() == pytest.approx(expected, rel=1e-4)


def test_logits_are_never_copied_to_full_precision() -> None:
    student, teacher, batch = writer("gpt2", seed=1), writer("gpt2", seed=2), batch_of(texts("gpt2"))
    lesson, kept = Lesson(methods.build("kd"), student, teacher), []
    size = batch.inputs["input_ids"].numel() * 40

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append((tensor.numel(), tensor.dtype))
        return tensor

    with torch.autocast("cpu", torch.bfloat16), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        losses = lesson.losses(batch)
    assert losses.total.dtype == torch.float32
    assert (size, torch.bfloat16) in kept and (size, torch.float32) not in kept


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_holds_tied_weights_once(family: str, tmp_path: Path) -> None:
    teacher, batch = writer(family, layers=4, seed=2), batch_of(texts(family))
    lesson = Lesson(methods.build("layer-forward"), writer(family, width=8, seed=1), teacher)
    optimiser = adamw(lesson.objective, 1e-2, 0.0)
    lesson.losses(batch).total.backward()
    optimiser.step()
    progress = checkpoint.Progress(step=1)
    checkpoint.save(tmp_path, lesson.objective, optimiser, progress)
    checkpoint.save_best(tmp_path, lesson.objective, 1)
    for restore in (checkpoint.restore_weights, lambda folder, module: checkpoint.load_best(folder, module, 1)):
        other = Lesson(methods.build("layer-forward"), writer(family, width=8, seed=5), teacher)
        restore(tmp_path, other.objective)
        for name, tensor in lesson.objective.state_dict().items():
            assert torch.equal(other.objective.state_dict()[name], tensor), name
        assert other.losses(batch).total.item() == pytest.approx(lesson.losses(batch).total.item(), rel=1e-6)


class Killed(Exception):
    pass


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    data, whole, cut, again = texts("t5", 16), *(random_lesson() for _ in range(3))
    settings = {"epochs": 4, "checkpoint_every": 3, "keep": "last"}
    run(whole, data, tmp_path / "whole", **settings)
    seen = []

    class Mortal(LiveTeacher):
        def __call__(self, *arguments: Any, **named: Any) -> Any:
            seen.append(arguments)
            if len(seen) == 6:
                raise Killed
            return super().__call__(*arguments, **named)

    cut.teacher = Mortal(cut.teacher.model)
    with pytest.raises(Killed):
        run(cut, data, tmp_path / "cut", **settings)
    run(again, data, tmp_path / "cut", resume=True, **settings)
    for name, tensor in whole.objective.state_dict().items():
        assert torch.equal(again.objective.state_dict()[name], tensor), name


def random_lesson() -> Lesson:
    return Lesson(methods.build("layer-random"), writer("t5", width=8, seed=1), writer("t5", layers=4, seed=2))


def faults_of(recipe: Recipe, student: PreTrainedModel, teacher: PreTrainedModel) -> str:
    configs = student.config, teacher.config
    with pytest.raises(UserError) as caught:
        check_stages(recipe.stages, *map(stack_sizes, configs), Clock(), configs)
    return str(caught.value)


def test_what_models_cannot_do_is_found_before_the_first_step() -> None:
    t5, more_heads = writer("t5"), writer("t5", layers=4, heads=4)
    attention = on_stacks(methods.build("l-ild"), "encoder-decoder")
    assert faults_of(attention, t5, more_heads).count("relation_heads=N") == 2
    five = on_stacks(methods.build("l-ild", {"relation_heads": 5}), "encoder-decoder", which="decoder")
    assert "5 relation heads do not divide 12, the width of the student's query and key" in faults_of(
        five, t5, more_heads
    )
    gpt2, llama = writer("gpt2"), writer("llama")
    crossed = replace(attention.stages[0].matches[2], represent=relations.cross_attention)
    assert "only the decoder of an encoder-decoder" in faults_of(
        Recipe(stages=(Stage(matches=(crossed,)),)), gpt2, gpt2
    )
    encoder = on_stacks(methods.build("layer-forward"), "encoder-decoder", which="encoder")
    assert "compares the encoder, which the models do not have" in faults_of(encoder, gpt2, gpt2)
    gpt2.config.scale_attn_by_inverse_layer_idx = True
    decoder = on_stacks(methods.build("l-ild"), "decoder")
    assert "a gpt2 model hold more than queries and keys" in faults_of(decoder, gpt2, gpt2)
    both = [methods.build("layer-forward", {"raw_last": raw}).stages[0].matches[0] for raw in (True, False)]
    mixed = Recipe(stages=(Stage(matches=(both[0], replace(both[1], name="other"))),))
    assert "before its norm" in faults_of(mixed, llama, llama)


def test_a_uniform_map_need_not_divide_each_stack() -> None:
    student, teacher = writer("t5", layers=3), writer("t5", layers=6)
    teacher.config.num_decoder_layers = 8
    recipe = on_stacks(methods.build("u-ild"), "encoder-decoder")
    configs = student.config, teacher.config
    ours, theirs = map(stack_sizes, configs)
    check_stages(recipe.stages, ours, theirs, Clock(), configs)
    met = {match.name: pairs_of(match, ours[match.stack].layers, theirs[match.stack].layers, Clock())
           for match in recipe.stages[0].matches}  # fmt: skip
    assert met["encoder_attention"] == [(1, 2), (2, 4), (3, 6)]
    assert met["decoder_attention"] == [(1, 3), (2, 6), (3, 8)]
    assert met["decoder_hidden"] == [(0, 0), (1, 3), (2, 6), (3, 8)]


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_terms_can_be_recomputed_from_traces(family: str) -> None:
    student, teacher, batch = writer(family, width=8, seed=1), writer(family, layers=4, seed=2), batch_of(texts(family))
    expected = Lesson(methods.build("u-ild"), student, teacher).losses(batch).terms
    shown = []
    for model, layers in ((student, {1, 2}), (teacher, {2, 4})):
        wanted = Wanted(hidden={0} | layers, query=layers, key=layers)
        shown.append(outputs_of(model, batch.inputs, dict.fromkeys(stack_sizes(model.config), wanted)))
    assert numbers(methods.terms("u-ild", *shown, batch, Clock())) == pytest.approx(numbers(expected), rel=1e-5)
    text = methods.terms("kd", *shown, batch, Clock())
    assert numbers(text) == pytest.approx(
        numbers(Lesson(methods.build("kd"), student, teacher).losses(batch).terms), rel=1e-5
    )
    with pytest.raises(UserError, match="labels in its inputs"):
        methods.terms("kd", replace(shown[0], targets=None), shown[1], batch, Clock())


def test_layers_of_two_stacks_keep_transports_of_their_own() -> None:
    """BERT-EMD shares the layers' weights between states and attention, not between an encoder and a decoder."""
    student, teacher = writer("bart", seed=1), writer("bart", layers=4, seed=2)
    lesson = Lesson(methods.build("bert-emd"), student.train(), teacher)
    lesson.losses(batch_of(texts("bart"))).total.backward()
    lesson.objective.after_step(new_epoch=False)
    flows = lesson.objective.flows["0"]
    for stack in ("encoder", "decoder"):
        torch.testing.assert_close(flows[f"{stack}_hidden"].teacher, flows[f"{stack}_attention"].teacher)
    assert not torch.allclose(flows["encoder_hidden"].teacher, flows["decoder_hidden"].teacher)
