# Made by `make stub` from the settings; a test says when it is no longer current.
"""stillery: intermediate-layer knowledge distillation of Transformer language models.

from stillery import distill, finetune

teacher = finetune(model="minilm-l6", data=reviews)
run = distill(teacher=teacher, data=reviews, method="layer-forward", layers=3)
run, run.model, run.predictions

Every function takes files or what is in memory: a DataFrame, a `datasets.Dataset`, a list of dicts. `Distiller` and
`DistillationTrainer` bring a method into a training loop of your own, and into that of transformers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from transformers import PreTrainedTokenizerBase

from stillery.analyse.finding import Finding
from stillery.api.loop.distiller import Distiller
from stillery.api.loop.trainer import DistillationTrainer
from stillery.api.types import Data, Model, StrPath
from stillery.jobs.comparison.result import Comparison
from stillery.jobs.diagnosis.findings import Diagnosis
from stillery.jobs.exported import Exported
from stillery.jobs.result import Result
from stillery.recipe import Recipe
from stillery.study.shrink.run import Shrunk
from stillery.train.callbacks import STOP

__all__ = [
    "STOP",
    "DistillationTrainer",
    "Distiller",
    "analysis",
    "compare",
    "diagnose",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "predict",
    "report",
    "score",
    "shrink",
]

def analysis(
    name: str,
    models: Model | Sequence[Model],
    *,
    data: Data | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    out: StrPath | None = None,
    examples: int | None = None,
    layers: int | None = None,
    init: str | None = None,
    steps: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    teacher: Model | None = None,
    pool: str | None = None,
    scale: bool | None = None,
    most: float | None = None,
    radii: int | None = None,
    draws: int | None = None,
    grid: int | None = None,
    margin: float | None = None,
    penalty: float | None = None,
    metric: str | None = None,
    bins: int | None = None,
    task: str | None = None,
    split: str | None = None,
    stack: str | None = None,
    data_dir: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    unlabelled: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    source: str | None = None,
    target: str | None = None,
    max_target_length: int | None = None,
    prompt: str | None = None,
    prefix: str | None = None,
    batch_size: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> Finding:
    """Carry out one of the papers' analyses on models or runs; see `stillery analyse --help` for what each shows.

    The result has arrays (`data`), one sentence that reads them, a Vega-Lite specification of the picture (`spec`) and
    a short table. With `out` it is also written as NAME.json, NAME.svg and NAME.png.

    What matters first:
        name: The analysis: forecast, angles, similarity, layer-divergence, attention-weights, flatness,
            loss-surface, probe, variance, supplementary, agreement, projections.
        models: A run, a folder, a name on the hub, or a model of transformers with its tokenizer; of several a
            list.
        data: A file, or a folder with train, dev and test files; or in memory a DataFrame of pandas or polars, a
            pyarrow Table, a datasets.Dataset or DatasetDict, a list of dicts, a dict of splits such as {'train':
            ..., 'test': ...}.
        tokenizer: The tokenizer of a model that is given in memory.
        out: Folder for NAME.json, .svg and .png.  [default: nothing is written]
        examples: Use N examples for the angles, evenly spread over the split.
        layers: Layers of the student. (forecast)
        init: The start to look at the layers of.  [default: first and even] (forecast)
        steps: Training steps of the trial of each start, 12 to 48; 0 leaves it out. (forecast)
        lr: Learning rate of the trial. (forecast)
        seed: Seed of the student, the trial and the shuffles. (forecast, flatness)
        teacher: The teacher.  [default: that of the student's run] (angles, similarity, attention-weights)
        pool: One vector of a text: of its first token, or the mean. (similarity, layer-divergence, probe,
            supplementary)
        scale: Divide the products by the square root of the width, as ALP-KD's option does. (attention-weights)
        most: Largest radius: the noise's size as a share of the embedding output's. (flatness, agreement)
        radii: Number of radii, evenly spaced from 0. (flatness)
        draws: Draws of the noise at each radius. (flatness)
        grid: Points along each side of the plane. (loss-surface)
        margin: How far the plane reaches beyond the models, as a share of their distance. (loss-surface)
        penalty: Strength of the L2 penalty of the probe (1 / C). (probe)
        metric: The metric to compare.  [default: the first, a task's official one] (variance, supplementary)
        bins: Bins of the reliability diagram. (agreement)
        task: A named task instead of data; see `stillery tasks`.

    Data:
        split: The split whose examples are used.
        stack: Which layers of an encoder-decoder.  [default: encoder] (angles, similarity, layer-divergence,
            attention-weights, probe)
        data_dir: Where a named task's files are.  [default: the hub's cache, then the hub]
        text: Column with the text, or with lists of words.  [default: found by name]
        text_pair: Column with the second text.  [default: found by name]
        label: Column with the label, several 0/1 columns: A,B,C, or lists of tags.  [default: found by name]
        query: Column with the query, as text or id: ranks the documents of each by nDCG@10, MRR and MAP; numeric
            labels are then grades, and a query is never divided between splits.
        regression: Labels are numbers to predict, not classes.  [default: found from the labels]
        multi_label: A text may have several labels, separated in its cell.  [default: if labels are lists or 0/1
            columns]
        label_separator: Separator of the labels of a text.  [default: |]
        max_classes: Most classes a label column may have.  [default: 1000, with two rows for each]
        label_map: Map the data's labels to the model's: 0=neg,1=pos.  [default: by the same names]
        encoding: Encoding of text files, such as latin-1 or utf-16.  [default: UTF-8]
        skip_empty: Leave out rows with no text or no label, which are errors otherwise.
        unlabelled: Distil on texts alone: no labels of the training split are needed or read.
        pooling: How a plain encoder embeds texts, from the states of their tokens.  [default: as its folder says,
            else mean]
        max_length: Tokens per example; longer texts are cut.  [default: as the model was trained, else 128]

    Text generation:
        source: Column with the source texts, to generate from.  [default: found by name]
        target: Column with the target texts.  [default: found by name]
        max_target_length: Tokens per target; longer ones are cut.  [default: as the model was trained, else 128]
        prompt: Prompt template of a decoder, with {source} in it.  [default: as the model was trained]
        prefix: Text put before each source of an encoder-decoder.  [default: as the model was trained]

    Speed:
        batch_size: Examples at a time.

    Output:
        overwrite: Replace earlier files in out.
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
    """

def compare(
    runs: Sequence[Result | StrPath],
    *,
    baseline: Result | StrPath | None = None,
    metric: str | None = None,
) -> Comparison:
    """Show finished runs and their teachers in one table, with paired differences; no model is loaded.

    The runs must have been scored on the same examples. With folders of exports among them, all models are scored, on
    the examples of the first run. The result prints the table, also at the end of a notebook's cell; its rows and
    differences are data.

    What matters first:
        runs: Finished runs, or their folders, and folders of exports.
        baseline: The run that the others are compared with.  [default: the first student]
        metric: The metric to compare.  [default: the first, a task's official one]
    """

def diagnose(
    run: Result | StrPath,
    *,
    probe: bool = False,
    difference: float = 5.0,
    quiet: bool = False,
    verbose: bool = False,
) -> Diagnosis:
    """Say why a student may be bad: each cause with its number and the option to change.

    The result prints as text, also at the end of a notebook's cell; its findings are data.

    What matters first:
        run: A finished run, or its folder.
        probe: Also try other starts of the student, for 48 steps each.
        difference: The difference of two models, in points, that the scores should be able to show.

    Output:
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
    """

def distill(
    *,
    teacher: Model | None = None,
    data: Data | None = None,
    out: StrPath | None = None,
    preset: str | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    task: str | None = None,
    layers: int | None = None,
    init: str | None = None,
    method: str = "layer-forward",
    epochs: int = 5,
    lr: float = 5e-05,
    data_dir: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    unlabelled: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    samples: int | None = None,
    sample_seed: int = 0,
    label_noise: float | None = None,
    noise_seed: int = 0,
    holdout: float | None = None,
    holdout_seed: int = 0,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    copy_layers: Sequence[int] | None = None,
    copy_encoder_layers: Sequence[int] | None = None,
    copy_decoder_layers: Sequence[int] | None = None,
    init_from: str | None = None,
    head: str | None = None,
    reuse: str | None = None,
    projector: str | None = None,
    freeze_embeddings: bool | None = None,
    tie_embeddings: bool | None = None,
    copy_embeddings: bool | None = None,
    allow_custom_head: bool | None = None,
    recipe: Recipe | str | None = None,
    hard_weight: float | None = None,
    temperature: float | None = None,
    pair: str | None = None,
    represent: str | None = None,
    distance: str | None = None,
    reduction: str | None = None,
    divergence: str | None = None,
    similarity_weight: float | None = None,
    square: bool | None = None,
    schedule: str | None = None,
    ild_data: str | None = None,
    ild_task: str | None = None,
    ild_teacher: str | None = None,
    ild_max_length: int | None = None,
    stacks: str = "both",
    cross_attention: bool = False,
    drop_start: bool = False,
    sequence_level: bool = False,
    on_policy: float = 0.0,
    options: Mapping[str, Any] | None = None,
    on_step: Callable[[int, Mapping[str, float]], object] | None = None,
    on_score: Callable[[int, Mapping[str, float]], object] | None = None,
    metric: Callable[[Any, Any], float | Mapping[str, float]] | str | None = None,
    max_steps: int | None = None,
    batch_size: int = 32,
    accumulate: int = 1,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    eval_every: int | None = None,
    keep: str = "best",
    dev_samples: int | None = None,
    class_weights: str | None = None,
    patience: int | None = None,
    seed: int = 0,
    source: str | None = None,
    target: str | None = None,
    max_target_length: int | None = None,
    prompt: str | None = None,
    prefix: str | None = None,
    beams: int = 4,
    max_new_tokens: int = 128,
    min_new_tokens: int = 0,
    length_penalty: float = 1.0,
    no_repeat_ngram: int = 0,
    early_stopping: bool = False,
    precision: str = "auto",
    graph: str = "auto",
    cache: str = "auto",
    cache_limit: float = 20.0,
    cache_dtype: str = "auto",
    config: StrPath | None = None,
    resume: bool = False,
    overwrite: bool = False,
    push_to_hub: str | None = None,
    quiet: bool = False,
    verbose: bool = False,
    checkpoint_every: int = 500,
    checkpoint_seconds: float | None = None,
    snapshot_every: int | None = None,
    log_every: int = 20,
    grad_norms: bool = False,
    guards: bool = True,
    track: str | None = None,
    tensorboard: bool = False,
) -> Result:
    """Distil a fine-tuned teacher into a smaller student, and write a run folder.

    Options have the names of the command line's, with underscores.

    What matters first:
        teacher: Fine-tuned model: a run, its folder, a name on the hub, or a model of transformers with its
            tokenizer.
        data: A file, or a folder with train, dev and test files; or in memory a DataFrame of pandas or polars, a
            pyarrow Table, a datasets.Dataset or DatasetDict, a list of dicts, a dict of splits such as {'train':
            ..., 'test': ...}.
        out: Folder to write the run to.  [default: a temporary one, which is removed when the process ends]
        preset: A paper's settings; see `stillery methods --presets`.
        tokenizer: The tokenizer of a model that is given in memory.
        task: A named task instead of data; see `stillery tasks`.
        layers: Layers of the student.
        init: even, first, last, important: which layers to copy; auto: first or even, whichever learns faster in
            a short trial (of runs of about 260 steps or more); random; or a checkpoint folder.  [default: the
            paper's, else first; even for models that generate or embed texts]
        method: Distillation method; see `stillery methods`.
        epochs: Passes over the training split, all stages together.
        lr: Peak learning rate of AdamW.

    Data:
        data_dir: Where a named task's files are.  [default: the hub's cache, then the hub]
        text: Column with the text, or with lists of words.  [default: found by name]
        text_pair: Column with the second text.  [default: found by name]
        label: Column with the label, several 0/1 columns: A,B,C, or lists of tags.  [default: found by name]
        query: Column with the query, as text or id: ranks the documents of each by nDCG@10, MRR and MAP; numeric
            labels are then grades, and a query is never divided between splits.
        regression: Labels are numbers to predict, not classes.  [default: found from the labels]
        multi_label: A text may have several labels, separated in its cell.  [default: if labels are lists or 0/1
            columns]
        label_separator: Separator of the labels of a text.  [default: |]
        max_classes: Most classes a label column may have.  [default: 1000, with two rows for each]
        label_map: Map the data's labels to the model's: 0=neg,1=pos.  [default: by the same names]
        encoding: Encoding of text files, such as latin-1 or utf-16.  [default: UTF-8]
        skip_empty: Leave out rows with no text or no label, which are errors otherwise.
        unlabelled: Distil on texts alone: no labels of the training split are needed or read.
        pooling: How a plain encoder embeds texts, from the states of their tokens.  [default: as its folder says,
            else mean]
        max_length: Tokens per example; longer texts are cut.  [default: as the teacher was trained, else 128]
        samples: Train on this many examples (of texts to generate: sources), drawn at random from the training
            split.
        sample_seed: Seed of that draw, and of the one of dev_samples.
        label_noise: Share of training labels flipped to another class.
        noise_seed: Seed of the flips.
        holdout: Share of the training split, such as 0.1, that chooses weights, early stopping and restarts
            instead of dev, which is then scored once, at the end.
        holdout_seed: Seed of that share; which texts it has depends on nothing else.

    Student:
        encoder_layers: Layers of its encoder, if it has a decoder too.  [default: layers, else the teacher's]
        decoder_layers: Layers of its decoder, if it has an encoder too.  [default: layers, else the teacher's]
        width: Hidden size of the student.  [default: the teacher's]
        heads: Attention heads of the student.  [default: keeps the teacher's head size]
        copy_layers: Layers to copy, 1-based, such as 2,5,8.
        copy_encoder_layers: Layers to copy into its encoder, likewise.
        copy_decoder_layers: Layers to copy into its decoder, likewise.
        init_from: Copy layers from this pretrained model, not from the teacher.
        head: fresh, reuse, reuse-frozen: the student's classifier.  [default: the method's]
        reuse: pooler+linear, linear: what of the teacher's head is reused.  [default: pooler+linear at the
            teacher's width, else linear]
        projector: linear, mlp: what takes the student's feature to a reused head.  [default: linear where the
            widths differ, else none]
        freeze_embeddings: Do not train the token embeddings of a model that generates text.
        tie_embeddings: A decoder's head and token embeddings are one tensor.  [default: as the teacher has it]
        copy_embeddings: With init random, start from the teacher's embeddings, in a model that generates text.
        allow_custom_head: Allow a reused head that no plain model can hold; the student then loads with stillery
            only.

    Method:
        recipe: A recipe of your own instead of method: a `stillery.recipe.Recipe`, or FILE.py:FUNCTION.
        hard_weight: Weight of the labels' loss.  [default: the method's]
        temperature: Temperature of prediction matching.  [default: the method's]
        pair: Which layers meet, for every match of layers.
        represent: What of a layer is compared.
        distance: How far layers are apart.
        reduction: How the distance of a pair is reduced.
        divergence: How far predictions are apart.
        similarity_weight: Weight of the cosine similarities within a batch, for models that embed texts.
            [default: 0]
        square: Multiply prediction matching by the squared temperature.
        schedule: Match layers and predictions jointly, or layers first (sequential).
        ild_data: Texts for the hidden-state stage, instead of data; they need no labels.
        ild_task: A named task's texts for the hidden-state stage.
        ild_teacher: Another teacher for the hidden-state stage.  [default: teacher]
        ild_max_length: Tokens per text of those.  [default: max_length]
        stacks: Of an encoder-decoder, the stacks whose layers are matched.
        cross_attention: Compare a decoder's attention to its encoder too, where attention is.
        drop_start: Match no layers where a decoder starts with its padding token, as T5 does; here that position
            counts.
        sequence_level: Train on the texts the teacher writes, generated once, not on the targets.
        on_policy: Share of steps on texts the student writes itself and the teacher scores.
        options: A method's own option, NAME=VALUE; may be given again.

    Training:
        on_step: Called after every step with its number, the loss and its terms; returning stillery.STOP or False
            stops the run, which is then scored and finished.
        on_score: Called after every scoring of the dev split with the step and the metrics; it stops a run
            likewise.
        metric: A function of labels and predictions (class names, numbers, or texts) that returns a number, or
            numbers by name; more is better, and the first decides which weights are best.
        max_steps: Stop after this many optimiser steps, whatever epochs says.
        batch_size: Examples per forward pass and process.
        accumulate: Forward passes per optimiser step; 4 x 8 trains like 1 x 32, unless a method compares examples
            of a batch.
        warmup: Share of a stage's steps over which the learning rate rises.
        weight_decay: Weight decay, not applied to biases and norms.
        clip: Gradient norm to clip to, projections included; 0 turns it off.
        eval_every: Score the dev split every N steps.  [default: once per epoch]
        keep: Keep the weights that are best on the dev split, or the last ones.
        dev_samples: Score this many dev examples while training; the score at the end is of all of them.
        class_weights: Weigh the labels' loss of a class by how rare it is: examples / (classes x examples of it).
        patience: Stop after this many scorings of the dev split without a gain.  [default: never]
        seed: Seed of initialisation, order, dropout and random pairings.

    Text generation:
        source: Column with the source texts, to generate from.  [default: found by name]
        target: Column with the target texts.  [default: found by name]
        max_target_length: Tokens per target; longer ones are cut.  [default: as the teacher was trained, else
            128]
        prompt: Prompt template of a decoder, with {source} in it.  [default: as the teacher was trained]
        prefix: Text put before each source of an encoder-decoder.  [default: as the teacher was trained]
        beams: Beams of the search; 1 takes the likeliest token each time.
        max_new_tokens: Where a generated text is cut off.
        min_new_tokens: Least number of tokens of a generated text.
        length_penalty: Above 0 favours long texts, below 0 short ones.
        no_repeat_ngram: No run of so many tokens appears twice in a text; 0 allows it.
        early_stopping: Stop a search as soon as it has as many finished texts as beams, likely or not.

    Speed:
        precision: Number format: auto is fp32 on a CPU, bf16 on a GPU that has it.
        graph: Replay steps as CUDA graphs: auto does on a GPU where a step repeats, on also says why where it
            cannot.
        cache: Cache the outputs of a classifier's teacher on disk: auto does where that saves time, on also
            caches queries, keys and values.
        cache_limit: Maximum size in GB, of all runs together.
        cache_dtype: Its number format: auto is fp32 in a run in fp32, else fp16; logits are fp32.

    Output:
        config: A run file; options given beside it win.
        resume: Continue the unfinished run in out.
        overwrite: Replace an earlier run in out, as soon as this one begins.
        push_to_hub: Upload the model and its card to the hub at the end, as NAME or ACCOUNT/NAME; a new one is
            private.
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
        checkpoint_every: Save a checkpoint to resume from every N steps.
        checkpoint_seconds: Save one too at most N seconds after the last, and sooner where that takes a twentieth
            of the time.
        snapshot_every: Keep the student's weights every N steps, and after each stage, in snapshots/, for
            `stillery analyse`.
        log_every: Write the loss terms to the log every N steps.
        grad_norms: Log the gradient norm of each loss term too.
        guards: Warn of a loss that explodes, a dominant loss term, projections that lose rank, constant
            predictions.
        track: Send the log to trackers too: tensorboard, mlflow, wandb, trackio, or several of them with commas.
        tensorboard: The same as track tensorboard.
    """

@overload
def evaluate(
    model: list[Model] | tuple[Model, ...],
    *,
    data: Data | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    against: Model | None = None,
    task: str | None = None,
    split: str | None = None,
    data_dir: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    metric: Callable[[Any, Any], float | Mapping[str, float]] | str | None = None,
    source: str | None = None,
    target: str | None = None,
    max_target_length: int | None = None,
    prompt: str | None = None,
    prefix: str | None = None,
    beams: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int | None = None,
    length_penalty: float | None = None,
    no_repeat_ngram: int | None = None,
    early_stopping: bool | None = None,
    batch_size: int = 64,
    predictions: StrPath | None = None,
    submission: StrPath | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> Comparison: ...
@overload
def evaluate(
    model: Model,
    *,
    data: Data | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    against: Model | None = None,
    task: str | None = None,
    split: str | None = None,
    data_dir: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    metric: Callable[[Any, Any], float | Mapping[str, float]] | str | None = None,
    source: str | None = None,
    target: str | None = None,
    max_target_length: int | None = None,
    prompt: str | None = None,
    prefix: str | None = None,
    beams: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int | None = None,
    length_penalty: float | None = None,
    no_repeat_ngram: int | None = None,
    early_stopping: bool | None = None,
    batch_size: int = 64,
    predictions: StrPath | None = None,
    submission: StrPath | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> dict[str, Any]:
    """Score a model on labelled examples, with 95% intervals, and beside its teacher; or compare several models.

    Returns the dictionary that `stillery evaluate --json` prints, of a list of models a Comparison: the table, and
    paired differences from the first. Options have the names of the command line's, with underscores.

    What matters first:
        model: A run, its folder, a name on the hub, or a model of transformers with its tokenizer; several in a
            list are compared.
        data: A file, or a folder with train, dev and test files; or in memory a DataFrame of pandas or polars, a
            pyarrow Table, a datasets.Dataset or DatasetDict, a list of dicts, a dict of splits such as {'train':
            ..., 'test': ...}.
        tokenizer: The tokenizer of a model that is given in memory.
        against: A teacher to compare with.
        task: A named task instead of data; see `stillery tasks`.

    Data:
        split: train, dev or test, of MNLI also dev_mismatched.  [default: a whole file; else test, or dev]
        data_dir: Where a named task's files are.  [default: the hub's cache, then the hub]
        text: Column with the text, or with lists of words.  [default: found by name]
        text_pair: Column with the second text.  [default: found by name]
        label: Column with the label, several 0/1 columns: A,B,C, or lists of tags.  [default: found by name]
        query: Column with the query, as text or id: ranks the documents of each by nDCG@10, MRR and MAP; numeric
            labels are then grades, and a query is never divided between splits.
        regression: Labels are numbers to predict, not classes.  [default: found from the labels]
        multi_label: A text may have several labels, separated in its cell.  [default: if labels are lists or 0/1
            columns]
        label_separator: Separator of the labels of a text.  [default: |]
        max_classes: Most classes a label column may have.  [default: 1000, with two rows for each]
        label_map: Map the data's labels to the model's: 0=neg,1=pos.  [default: by the same names]
        encoding: Encoding of text files, such as latin-1 or utf-16.  [default: UTF-8]
        skip_empty: Leave out rows with no text or no label, which are errors otherwise.
        pooling: How a plain encoder embeds texts, from the states of their tokens.  [default: as its folder says,
            else mean]
        max_length: Tokens per example; longer texts are cut.  [default: as the model was trained, else 128]

    Training:
        metric: A function of labels and predictions (class names, numbers, or texts) that returns a number, or
            numbers by name; more is better, and the first decides which weights are best.

    Text generation:
        source: Column with the source texts, to generate from.  [default: found by name]
        target: Column with the target texts.  [default: found by name]
        max_target_length: Tokens per target; longer ones are cut.  [default: as the model was trained, else 128]
        prompt: Prompt template of a decoder, with {source} in it.  [default: as the model was trained]
        prefix: Text put before each source of an encoder-decoder.  [default: as the model was trained]
        beams: Beams of the search; 1 takes the likeliest token each time.  [default: as in the model's run, else
            4]
        max_new_tokens: Where a generated text is cut off.  [default: as in the model's run, else 128]
        min_new_tokens: Least number of tokens of a generated text.  [default: as in the model's run, else 0]
        length_penalty: Above 0 favours long texts, below 0 short ones.  [default: as in the model's run, else
            1.0]
        no_repeat_ngram: No run of so many tokens appears twice in a text; 0 allows it.  [default: as in the
            model's run, else 0]
        early_stopping: Stop a search as soon as it has as many finished texts as beams, likely or not.  [default:
            as in the model's run, else False]

    Speed:
        batch_size: Texts at a time.

    Output:
        predictions: File for every example and what the model made of it.
        submission: Folder for predictions on a GLUE task's test split, in the leaderboard's format.
        overwrite: Replace files of predictions and submission.
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
    """

def export(
    model: Model,
    *,
    data: Data | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    out: StrPath,
    int8: bool = False,
    task: str | None = None,
    split: str | None = None,
    data_dir: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    batch_size: int = 64,
    latency: bool = True,
    min_agreement: float = 99.9,
    min_agreement_int8: float = 98.0,
    force: bool = False,
    overwrite: bool = False,
    push_to_hub: str | None = None,
    quiet: bool = False,
    verbose: bool = False,
) -> Exported:
    """Write a trained encoder as ONNX and int8, if it still predicts what its checkpoint predicts.

    It is compared on real examples, those of its run's dev split or of data or task. The result prints the table of
    checkpoint, ONNX and int8; `record` is the contents of `export.json`.

    What matters first:
        model: A run, its folder, a name on the hub, or a model of transformers with its tokenizer.
        data: A file, or a folder with train, dev and test files; or in memory a DataFrame of pandas or polars, a
            pyarrow Table, a datasets.Dataset or DatasetDict, a list of dicts, a dict of splits such as {'train':
            ..., 'test': ...}.
        tokenizer: The tokenizer of a model that is given in memory.
        out: Folder to write.
        int8: Write an int8 file too.
        task: A named task instead of data; see `stillery tasks`.

    Data:
        split: Split to compare on.  [default: dev; of a whole file all]
        data_dir: Where a named task's files are.  [default: the hub's cache, then the hub]
        text: Column with the text, or with lists of words.  [default: found by name]
        text_pair: Column with the second text.  [default: found by name]
        label: Column with the label, several 0/1 columns: A,B,C, or lists of tags.  [default: found by name]
        query: Column with the query, as text or id: ranks the documents of each by nDCG@10, MRR and MAP; numeric
            labels are then grades, and a query is never divided between splits.
        regression: Labels are numbers to predict, not classes.  [default: found from the labels]
        multi_label: A text may have several labels, separated in its cell.  [default: if labels are lists or 0/1
            columns]
        label_separator: Separator of the labels of a text.  [default: |]
        max_classes: Most classes a label column may have.  [default: 1000, with two rows for each]
        label_map: Map the data's labels to the model's: 0=neg,1=pos.  [default: by the same names]
        encoding: Encoding of text files, such as latin-1 or utf-16.  [default: UTF-8]
        skip_empty: Leave out rows with no text or no label, which are errors otherwise.
        pooling: How a plain encoder embeds texts, from the states of their tokens.  [default: as its folder says,
            else mean]
        max_length: Tokens per example; longer texts are cut.  [default: as the model was trained, else 128]

    Speed:
        batch_size: Texts at a time.
        latency: Measure latency too.

    Output:
        min_agreement: Least agreement with the checkpoint, in percent.
        min_agreement_int8: The same for the int8 file.
        force: Write files that agree less.
        overwrite: Replace an earlier export in out.
        push_to_hub: Upload the model and its card to the hub at the end, as NAME or ACCOUNT/NAME; a new one is
            private.
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
    """

def finetune(
    *,
    model: Model | None = None,
    data: Data | None = None,
    out: StrPath | None = None,
    preset: str | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    task: str | None = None,
    epochs: int = 5,
    lr: float = 5e-05,
    data_dir: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    unlabelled: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    samples: int | None = None,
    sample_seed: int = 0,
    label_noise: float | None = None,
    noise_seed: int = 0,
    holdout: float | None = None,
    holdout_seed: int = 0,
    on_step: Callable[[int, Mapping[str, float]], object] | None = None,
    on_score: Callable[[int, Mapping[str, float]], object] | None = None,
    metric: Callable[[Any, Any], float | Mapping[str, float]] | str | None = None,
    restarts: int = 0,
    max_steps: int | None = None,
    batch_size: int = 32,
    accumulate: int = 1,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    eval_every: int | None = None,
    keep: str = "best",
    dev_samples: int | None = None,
    class_weights: str | None = None,
    patience: int | None = None,
    seed: int = 0,
    source: str | None = None,
    target: str | None = None,
    max_target_length: int | None = None,
    prompt: str | None = None,
    prefix: str | None = None,
    beams: int = 4,
    max_new_tokens: int = 128,
    min_new_tokens: int = 0,
    length_penalty: float = 1.0,
    no_repeat_ngram: int = 0,
    early_stopping: bool = False,
    precision: str = "auto",
    graph: str = "auto",
    config: StrPath | None = None,
    resume: bool = False,
    overwrite: bool = False,
    push_to_hub: str | None = None,
    quiet: bool = False,
    verbose: bool = False,
    checkpoint_every: int = 500,
    checkpoint_seconds: float | None = None,
    snapshot_every: int | None = None,
    log_every: int = 20,
    grad_norms: bool = False,
    guards: bool = True,
    track: str | None = None,
    tensorboard: bool = False,
) -> Result:
    """Fine-tune a pretrained model on labelled examples, and write a run folder.

    Options have the names of the command line's, with underscores.

    What matters first:
        model: Pretrained model: a folder, a name on the hub, or a model of transformers with its tokenizer.
        data: A file, or a folder with train, dev and test files; or in memory a DataFrame of pandas or polars, a
            pyarrow Table, a datasets.Dataset or DatasetDict, a list of dicts, a dict of splits such as {'train':
            ..., 'test': ...}.
        out: Folder to write the run to.  [default: a temporary one, which is removed when the process ends]
        preset: A paper's settings; see `stillery methods --presets`.
        tokenizer: The tokenizer of a model that is given in memory.
        task: A named task instead of data; see `stillery tasks`.
        epochs: Passes over the training split, all stages together.
        lr: Peak learning rate of AdamW.

    Data:
        data_dir: Where a named task's files are.  [default: the hub's cache, then the hub]
        text: Column with the text, or with lists of words.  [default: found by name]
        text_pair: Column with the second text.  [default: found by name]
        label: Column with the label, several 0/1 columns: A,B,C, or lists of tags.  [default: found by name]
        query: Column with the query, as text or id: ranks the documents of each by nDCG@10, MRR and MAP; numeric
            labels are then grades, and a query is never divided between splits.
        regression: Labels are numbers to predict, not classes.  [default: found from the labels]
        multi_label: A text may have several labels, separated in its cell.  [default: if labels are lists or 0/1
            columns]
        label_separator: Separator of the labels of a text.  [default: |]
        max_classes: Most classes a label column may have.  [default: 1000, with two rows for each]
        label_map: Map the data's labels to the model's: 0=neg,1=pos.  [default: by the same names]
        encoding: Encoding of text files, such as latin-1 or utf-16.  [default: UTF-8]
        skip_empty: Leave out rows with no text or no label, which are errors otherwise.
        unlabelled: Distil on texts alone: no labels of the training split are needed or read.
        pooling: How a plain encoder embeds texts, from the states of their tokens.  [default: as its folder says,
            else mean]
        max_length: Tokens per example; longer texts are cut.  [default: as the base model was trained, else 128]
        samples: Train on this many examples (of texts to generate: sources), drawn at random from the training
            split.
        sample_seed: Seed of that draw, and of the one of dev_samples.
        label_noise: Share of training labels flipped to another class.
        noise_seed: Seed of the flips.
        holdout: Share of the training split, such as 0.1, that chooses weights, early stopping and restarts
            instead of dev, which is then scored once, at the end.
        holdout_seed: Seed of that share; which texts it has depends on nothing else.

    Training:
        on_step: Called after every step with its number, the loss and its terms; returning stillery.STOP or False
            stops the run, which is then scored and finished.
        on_score: Called after every scoring of the dev split with the step and the metrics; it stops a run
            likewise.
        metric: A function of labels and predictions (class names, numbers, or texts) that returns a number, or
            numbers by name; more is better, and the first decides which weights are best.
        restarts: Train again with the next seed, at most N times, while every dev example gets one answer.
        max_steps: Stop after this many optimiser steps, whatever epochs says.
        batch_size: Examples per forward pass and process.
        accumulate: Forward passes per optimiser step; 4 x 8 trains like 1 x 32, unless a method compares examples
            of a batch.
        warmup: Share of a stage's steps over which the learning rate rises.
        weight_decay: Weight decay, not applied to biases and norms.
        clip: Gradient norm to clip to, projections included; 0 turns it off.
        eval_every: Score the dev split every N steps.  [default: once per epoch]
        keep: Keep the weights that are best on the dev split, or the last ones.
        dev_samples: Score this many dev examples while training; the score at the end is of all of them.
        class_weights: Weigh the labels' loss of a class by how rare it is: examples / (classes x examples of it).
        patience: Stop after this many scorings of the dev split without a gain.  [default: never]
        seed: Seed of initialisation, order, dropout and random pairings.

    Text generation:
        source: Column with the source texts, to generate from.  [default: found by name]
        target: Column with the target texts.  [default: found by name]
        max_target_length: Tokens per target; longer ones are cut.  [default: as the base model was trained, else
            128]
        prompt: Prompt template of a decoder, with {source} in it.  [default: as the base model was trained]
        prefix: Text put before each source of an encoder-decoder.  [default: as the base model was trained]
        beams: Beams of the search; 1 takes the likeliest token each time.
        max_new_tokens: Where a generated text is cut off.
        min_new_tokens: Least number of tokens of a generated text.
        length_penalty: Above 0 favours long texts, below 0 short ones.
        no_repeat_ngram: No run of so many tokens appears twice in a text; 0 allows it.
        early_stopping: Stop a search as soon as it has as many finished texts as beams, likely or not.

    Speed:
        precision: Number format: auto is fp32 on a CPU, bf16 on a GPU that has it.
        graph: Replay steps as CUDA graphs: auto does on a GPU where a step repeats, on also says why where it
            cannot.

    Output:
        config: A run file; options given beside it win.
        resume: Continue the unfinished run in out.
        overwrite: Replace an earlier run in out, as soon as this one begins.
        push_to_hub: Upload the model and its card to the hub at the end, as NAME or ACCOUNT/NAME; a new one is
            private.
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
        checkpoint_every: Save a checkpoint to resume from every N steps.
        checkpoint_seconds: Save one too at most N seconds after the last, and sooner where that takes a twentieth
            of the time.
        snapshot_every: Keep the student's weights every N steps, and after each stage, in snapshots/, for
            `stillery analyse`.
        log_every: Write the loss terms to the log every N steps.
        grad_norms: Log the gradient norm of each loss term too.
        guards: Warn of a loss that explodes, a dominant loss term, projections that lose rank, constant
            predictions.
        track: Send the log to trackers too: tensorboard, mlflow, wandb, trackio, or several of them with commas.
        tensorboard: The same as track tensorboard.
    """

def predict(
    model: Model,
    *,
    data: Data,
    out: StrPath | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    query: str | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    source: str | None = None,
    prompt: str | None = None,
    prefix: str | None = None,
    beams: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int | None = None,
    length_penalty: float | None = None,
    no_repeat_ngram: int | None = None,
    early_stopping: bool | None = None,
    batch_size: int = 64,
    overwrite: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> Any:
    """Add a model's predictions to texts: labels and probabilities, or the texts that it generates.

    With `out` the rows are written there, and their number is returned. Without, they are returned as a table of the
    kind that was given: a DataFrame of pandas or polars or a pyarrow Table; of anything else a pandas DataFrame, where
    pandas is not installed a pyarrow Table.

    What matters first:
        model: A run, its folder, a name on the hub, or a model of transformers with its tokenizer.
        data: A file with texts, a list of texts, or a table in memory.
        out: File to write; its suffix decides the format.  [default: none, the table is returned]
        tokenizer: The tokenizer of a model that is given in memory.

    Data:
        text: Column with the text, or with lists of words.  [default: found by name]
        text_pair: Column with the second text.  [default: found by name]
        query: Column with the query, as text or id: ranks the documents of each by nDCG@10, MRR and MAP; numeric
            labels are then grades, and a query is never divided between splits.
        label_map: Map the data's labels to the model's: 0=neg,1=pos.  [default: by the same names]
        encoding: Encoding of text files, such as latin-1 or utf-16.  [default: UTF-8]
        skip_empty: Leave out rows with no text or no label, which are errors otherwise.
        pooling: How a plain encoder embeds texts, from the states of their tokens.  [default: as its folder says,
            else mean]
        max_length: Tokens per example; longer texts are cut.  [default: as the model was trained, else 128]

    Text generation:
        source: Column with the source texts, to generate from.  [default: found by name]
        prompt: Prompt template of a decoder, with {source} in it.  [default: as the model was trained]
        prefix: Text put before each source of an encoder-decoder.  [default: as the model was trained]
        beams: Beams of the search; 1 takes the likeliest token each time.  [default: as in the model's run, else
            4]
        max_new_tokens: Where a generated text is cut off.  [default: as in the model's run, else 128]
        min_new_tokens: Least number of tokens of a generated text.  [default: as in the model's run, else 0]
        length_penalty: Above 0 favours long texts, below 0 short ones.  [default: as in the model's run, else
            1.0]
        no_repeat_ngram: No run of so many tokens appears twice in a text; 0 allows it.  [default: as in the
            model's run, else 0]
        early_stopping: Stop a search as soon as it has as many finished texts as beams, likely or not.  [default:
            as in the model's run, else False]

    Speed:
        batch_size: Texts at a time.

    Output:
        overwrite: Replace the file in out, once all rows are written.
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
    """

def report(
    places: Sequence[Result | StrPath] | Result | StrPath,
    *,
    out: StrPath = "report.html",
    overwrite: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> Path:
    """Write one HTML page of runs and studies, and return its path; no model is loaded.

    It needs no network and opens from disk: scores with intervals, costs, learning curves, and the examples on which
    teachers and students disagree.

    What matters first:
        places: Finished runs, folders of runs and studies, .json files of analyses; one or several.
        out: The page to write.

    Output:
        overwrite: Replace the page in out.
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
    """

@overload
def score(
    model: list[Model] | tuple[Model, ...],
    *,
    data: Data | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    against: Model | None = None,
    task: str | None = None,
    split: str | None = None,
    data_dir: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    metric: Callable[[Any, Any], float | Mapping[str, float]] | str | None = None,
    source: str | None = None,
    target: str | None = None,
    max_target_length: int | None = None,
    prompt: str | None = None,
    prefix: str | None = None,
    beams: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int | None = None,
    length_penalty: float | None = None,
    no_repeat_ngram: int | None = None,
    early_stopping: bool | None = None,
    batch_size: int = 64,
    predictions: StrPath | None = None,
    submission: StrPath | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> Comparison: ...
@overload
def score(
    model: Model,
    *,
    data: Data | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    against: Model | None = None,
    task: str | None = None,
    split: str | None = None,
    data_dir: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    metric: Callable[[Any, Any], float | Mapping[str, float]] | str | None = None,
    source: str | None = None,
    target: str | None = None,
    max_target_length: int | None = None,
    prompt: str | None = None,
    prefix: str | None = None,
    beams: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int | None = None,
    length_penalty: float | None = None,
    no_repeat_ngram: int | None = None,
    early_stopping: bool | None = None,
    batch_size: int = 64,
    predictions: StrPath | None = None,
    submission: StrPath | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> dict[str, Any]:
    """The old name of `stillery.evaluate`, which does the same.

    What matters first:
        model: A run, its folder, a name on the hub, or a model of transformers with its tokenizer; several in a
            list are compared.
        data: A file, or a folder with train, dev and test files; or in memory a DataFrame of pandas or polars, a
            pyarrow Table, a datasets.Dataset or DatasetDict, a list of dicts, a dict of splits such as {'train':
            ..., 'test': ...}.
        tokenizer: The tokenizer of a model that is given in memory.
        against: A teacher to compare with.
        task: A named task instead of data; see `stillery tasks`.

    Data:
        split: train, dev or test, of MNLI also dev_mismatched.  [default: a whole file; else test, or dev]
        data_dir: Where a named task's files are.  [default: the hub's cache, then the hub]
        text: Column with the text, or with lists of words.  [default: found by name]
        text_pair: Column with the second text.  [default: found by name]
        label: Column with the label, several 0/1 columns: A,B,C, or lists of tags.  [default: found by name]
        query: Column with the query, as text or id: ranks the documents of each by nDCG@10, MRR and MAP; numeric
            labels are then grades, and a query is never divided between splits.
        regression: Labels are numbers to predict, not classes.  [default: found from the labels]
        multi_label: A text may have several labels, separated in its cell.  [default: if labels are lists or 0/1
            columns]
        label_separator: Separator of the labels of a text.  [default: |]
        max_classes: Most classes a label column may have.  [default: 1000, with two rows for each]
        label_map: Map the data's labels to the model's: 0=neg,1=pos.  [default: by the same names]
        encoding: Encoding of text files, such as latin-1 or utf-16.  [default: UTF-8]
        skip_empty: Leave out rows with no text or no label, which are errors otherwise.
        pooling: How a plain encoder embeds texts, from the states of their tokens.  [default: as its folder says,
            else mean]
        max_length: Tokens per example; longer texts are cut.  [default: as the model was trained, else 128]

    Training:
        metric: A function of labels and predictions (class names, numbers, or texts) that returns a number, or
            numbers by name; more is better, and the first decides which weights are best.

    Text generation:
        source: Column with the source texts, to generate from.  [default: found by name]
        target: Column with the target texts.  [default: found by name]
        max_target_length: Tokens per target; longer ones are cut.  [default: as the model was trained, else 128]
        prompt: Prompt template of a decoder, with {source} in it.  [default: as the model was trained]
        prefix: Text put before each source of an encoder-decoder.  [default: as the model was trained]
        beams: Beams of the search; 1 takes the likeliest token each time.  [default: as in the model's run, else
            4]
        max_new_tokens: Where a generated text is cut off.  [default: as in the model's run, else 128]
        min_new_tokens: Least number of tokens of a generated text.  [default: as in the model's run, else 0]
        length_penalty: Above 0 favours long texts, below 0 short ones.  [default: as in the model's run, else
            1.0]
        no_repeat_ngram: No run of so many tokens appears twice in a text; 0 allows it.  [default: as in the
            model's run, else 0]
        early_stopping: Stop a search as soon as it has as many finished texts as beams, likely or not.  [default:
            as in the model's run, else False]

    Speed:
        batch_size: Texts at a time.

    Output:
        predictions: File for every example and what the model made of it.
        submission: Folder for predictions on a GLUE task's test split, in the leaderboard's format.
        overwrite: Replace files of predictions and submission.
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
    """

def shrink(
    *,
    teacher: Model | None = None,
    model: Model | None = None,
    data: Data | None = None,
    within: float | None = None,
    max_params: int | str | None = None,
    max_latency: float | None = None,
    layers: Sequence[int] | None = None,
    widths: Sequence[int] | None = None,
    inits: Sequence[str] | None = None,
    out: StrPath | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    method: str = "kd",
    task: str | None = None,
    epochs: int = 5,
    lr: float = 5e-05,
    holdout: float | None = 0.1,
    data_dir: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    query: str | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    max_classes: int | None = None,
    label_map: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    samples: int | None = None,
    sample_seed: int = 0,
    label_noise: float | None = None,
    noise_seed: int = 0,
    holdout_seed: int = 0,
    every: bool = False,
    hard_weight: float | None = None,
    temperature: float | None = None,
    pair: str | None = None,
    represent: str | None = None,
    distance: str | None = None,
    reduction: str | None = None,
    divergence: str | None = None,
    similarity_weight: float | None = None,
    square: bool | None = None,
    schedule: str | None = None,
    ild_data: str | None = None,
    ild_task: str | None = None,
    ild_teacher: str | None = None,
    ild_max_length: int | None = None,
    recipe: str | None = None,
    options: Mapping[str, Any] | None = None,
    max_steps: int | None = None,
    batch_size: int = 32,
    accumulate: int = 1,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    eval_every: int | None = None,
    keep: str = "best",
    metric: str | None = None,
    dev_samples: int | None = None,
    class_weights: str | None = None,
    patience: int | None = None,
    seed: int = 0,
    workers: int = 0,
    precision: str = "auto",
    graph: str = "auto",
    cache: str = "auto",
    cache_limit: float = 20.0,
    cache_dtype: str = "auto",
    retry_failed: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    checkpoint_every: int = 500,
    checkpoint_seconds: float | None = None,
    snapshot_every: int | None = None,
    log_every: int = 20,
    grad_norms: bool = False,
    guards: bool = True,
    track: str | None = None,
    tensorboard: bool = False,
) -> Shrunk:
    """Find the smallest student within a margin of its teacher, or the best one under a limit.

    The result prints the curve and what it says; `recommended` is the folder of a model. Options have the names of the
    command line's, with underscores.

    What matters first:
        teacher: Fine-tuned model: a run, its folder, a name on the hub, or a model of transformers with its
            tokenizer.
        model: A pretrained model to fine-tune as the teacher first, instead of a teacher.
        data: A file, or a folder with train, dev and test files; or in memory a DataFrame of pandas or polars, a
            pyarrow Table, a datasets.Dataset or DatasetDict, a list of dicts, a dict of splits such as {'train':
            ..., 'test': ...}.
        within: Find the smallest student that is so many points below the teacher at most.  [default: 1.0]
        max_params: Find the best student with so many parameters at most, such as 15_000_000 or '15M'.
        max_latency: Find the best student that takes so many milliseconds a text at most.
        layers: Depths to try.  [default: every sixth of the teacher's]
        widths: Widths to try.  [default: the teacher's]
        inits: Starts to try, such as ['first', 'even'].  [default: the method's]
        out: Folder of the search; the same call continues it.  [default: a temporary one, which is removed when
            the process ends]
        tokenizer: The tokenizer of a model that is given in memory.
        method: Distillation method; see `stillery methods`.
        task: A named task instead of data; see `stillery tasks`.
        epochs: Passes over the training split, all stages together.
        lr: Peak learning rate of AdamW.

    Data:
        holdout: Share of the training split, such as 0.1, that chooses weights, early stopping and restarts
            instead of dev, which is then scored once, at the end.
        data_dir: Where a named task's files are.  [default: the hub's cache, then the hub]
        text: Column with the text, or with lists of words.  [default: found by name]
        text_pair: Column with the second text.  [default: found by name]
        label: Column with the label, several 0/1 columns: A,B,C, or lists of tags.  [default: found by name]
        query: Column with the query, as text or id: ranks the documents of each by nDCG@10, MRR and MAP; numeric
            labels are then grades, and a query is never divided between splits.
        regression: Labels are numbers to predict, not classes.  [default: found from the labels]
        multi_label: A text may have several labels, separated in its cell.  [default: if labels are lists or 0/1
            columns]
        label_separator: Separator of the labels of a text.  [default: |]
        max_classes: Most classes a label column may have.  [default: 1000, with two rows for each]
        label_map: Map the data's labels to the model's: 0=neg,1=pos.  [default: by the same names]
        encoding: Encoding of text files, such as latin-1 or utf-16.  [default: UTF-8]
        skip_empty: Leave out rows with no text or no label, which are errors otherwise.
        pooling: How a plain encoder embeds texts, from the states of their tokens.  [default: as its folder says,
            else mean]
        max_length: Tokens per example; longer texts are cut.  [default: as the teacher was trained, else 128]
        samples: Train on this many examples (of texts to generate: sources), drawn at random from the training
            split.
        sample_seed: Seed of that draw, and of the one of dev_samples.
        label_noise: Share of training labels flipped to another class.
        noise_seed: Seed of the flips.
        holdout_seed: Seed of that share; which texts it has depends on nothing else.

    Student:
        every: Train every student in full, for the whole curve.

    Method:
        hard_weight: Weight of the labels' loss.  [default: the method's]
        temperature: Temperature of prediction matching.  [default: the method's]
        pair: Which layers meet, for every match of layers.
        represent: What of a layer is compared.
        distance: How far layers are apart.
        reduction: How the distance of a pair is reduced.
        divergence: How far predictions are apart.
        similarity_weight: Weight of the cosine similarities within a batch, for models that embed texts.
            [default: 0]
        square: Multiply prediction matching by the squared temperature.
        schedule: Match layers and predictions jointly, or layers first (sequential).
        ild_data: Texts for the hidden-state stage, instead of data; they need no labels.
        ild_task: A named task's texts for the hidden-state stage.
        ild_teacher: Another teacher for the hidden-state stage.  [default: teacher]
        ild_max_length: Tokens per text of those.  [default: max_length]
        recipe: A recipe of your own instead of method: FILE.py:FUNCTION.
        options: A method's own option, NAME=VALUE; may be given again.

    Training:
        max_steps: Stop after this many optimiser steps, whatever epochs says.
        batch_size: Examples per forward pass and process.
        accumulate: Forward passes per optimiser step; 4 x 8 trains like 1 x 32, unless a method compares examples
            of a batch.
        warmup: Share of a stage's steps over which the learning rate rises.
        weight_decay: Weight decay, not applied to biases and norms.
        clip: Gradient norm to clip to, projections included; 0 turns it off.
        eval_every: Score the dev split every N steps.  [default: once per epoch]
        keep: Keep the weights that are best on the dev split, or the last ones.
        metric: Metric of a classifier that decides which weights are best.  [default: the task's first metric]
        dev_samples: Score this many dev examples while training; the score at the end is of all of them.
        class_weights: Weigh the labels' loss of a class by how rare it is: examples / (classes x examples of it).
        patience: Stop after this many scorings of the dev split without a gain.  [default: never]
        seed: Seed of initialisation, order, dropout and random pairings.

    Speed:
        workers: Worker processes: for each GPU, or in all where there is none; 0 trains in this process.
        precision: Number format: auto is fp32 on a CPU, bf16 on a GPU that has it.
        graph: Replay steps as CUDA graphs: auto does on a GPU where a step repeats, on also says why where it
            cannot.
        cache: Cache the outputs of a classifier's teacher on disk: auto does where that saves time, on also
            caches queries, keys and values.
        cache_limit: Maximum size in GB, of all runs together.
        cache_dtype: Its number format: auto is fp32 in a run in fp32, else fp16; logits are fp32.

    Output:
        retry_failed: Train students again that failed.
        quiet: Say nothing but warnings: no progress and no messages.
        verbose: Say details too: splits, starts, pairs of layers, caches, number formats.
        checkpoint_every: Save a checkpoint to resume from every N steps.
        checkpoint_seconds: Save one too at most N seconds after the last, and sooner where that takes a twentieth
            of the time.
        snapshot_every: Keep the student's weights every N steps, and after each stage, in snapshots/, for
            `stillery analyse`.
        log_every: Write the loss terms to the log every N steps.
        grad_norms: Log the gradient norm of each loss term too.
        guards: Warn of a loss that explodes, a dominant loss term, projections that lose rank, constant
            predictions.
        track: Send the log to trackers too: tensorboard, mlflow, wandb, trackio, or several of them with commas.
        tensorboard: The same as track tensorboard.
    """
