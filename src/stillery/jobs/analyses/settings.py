"""The settings of the analyses, and for each analysis what it takes and where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stillery.setting import Panel, setting

if TYPE_CHECKING:
    from stillery.analyse.finding import Finding

__all__ = [
    "ANALYSES",
    "AgreementSettings",
    "Analysis",
    "AnglesSettings",
    "AttentionSettings",
    "DivergenceSettings",
    "FlatnessSettings",
    "ForecastSettings",
    "LayersSettings",
    "ProbeSettings",
    "ProjectionSettings",
    "Request",
    "SimilaritySettings",
    "SupplementarySettings",
    "SurfaceSettings",
    "VarianceSettings",
]

SPLITS = ("train", "dev", "test")
_POOLS = ("first", "mean")


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """Settings of every analysis that runs models on examples."""

    panel: ClassVar[Panel] = Panel.FIRST

    examples: int | None = setting(None, "Use N examples, evenly spread over the split.  [default: all]", least=1)
    split: str = setting("dev", "The split whose examples are used.", choices=SPLITS, panel=Panel.DATA)
    batch_size: int = setting(32, "Examples at a time.", least=1, panel=Panel.SPEED)


@dataclass(frozen=True, kw_only=True)
class LayersSettings(_Settings):
    """Settings of analyses of layers."""

    stack: str | None = setting(
        None, "Which layers of an encoder-decoder.  [default: encoder]", choices=("encoder", "decoder"),
        panel=Panel.DATA,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _BesideTeacher(LayersSettings):
    """Settings of analyses of a student beside its teacher."""

    teacher: str | None = setting(None, "The teacher.  [default: that of the student's run]")


@dataclass(frozen=True, kw_only=True)
class AnglesSettings(_BesideTeacher):
    """Settings of `angles`."""


@dataclass(frozen=True, kw_only=True)
class SimilaritySettings(_BesideTeacher):
    """Settings of `similarity`."""

    pool: str = setting("mean", "One vector of a text: of its first token, or the mean.", choices=_POOLS)


@dataclass(frozen=True, kw_only=True)
class DivergenceSettings(LayersSettings):
    """Settings of `layer-divergence`."""

    pool: str | None = setting(
        None, "One vector of a text: of its first token, or the mean.  [default: first, of a decoder mean]",
        choices=_POOLS,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AttentionSettings(_BesideTeacher):
    """Settings of `attention-weights`."""

    split: str = setting("train", "The split whose examples are used.", choices=SPLITS, panel=Panel.DATA)
    scale: bool = setting(False, "Divide the products by the square root of the width, as ALP-KD's option does.")


@dataclass(frozen=True, kw_only=True)
class FlatnessSettings(_Settings):
    """Settings of `flatness`."""

    examples: int | None = setting(512, "Use at most N examples, evenly spread over the split.", least=1)
    split: str = setting("train", "The split whose loss is measured.", choices=SPLITS, panel=Panel.DATA)
    most: float = setting(2.0, "Largest radius: the noise's size as a share of the embedding output's.", above=0)
    radii: int = setting(6, "Number of radii, evenly spaced from 0.", least=2)
    draws: int = setting(5, "Draws of the noise at each radius.", least=1)
    seed: int = setting(0, "Seed of the noise.", least=0)


@dataclass(frozen=True, kw_only=True)
class SurfaceSettings(_Settings):
    """Settings of `loss-surface`."""

    examples: int | None = setting(256, "Use at most N examples, evenly spread over the split.", least=1)
    split: str = setting("train", "The split whose loss is measured.", choices=SPLITS, panel=Panel.DATA)
    grid: int = setting(11, "Points along each side of the plane.", least=2)
    margin: float = setting(0.25, "How far the plane reaches beyond the models, as a share of their distance.", least=0)


@dataclass(frozen=True, kw_only=True)
class ProbeSettings(LayersSettings):
    """Settings of `probe`."""

    examples: int | None = setting(2000, "Use at most N examples of each split, evenly spread.", least=2)
    pool: str = setting("mean", "One vector of a text: of its first token, or the mean.", choices=_POOLS)
    penalty: float = setting(1.0, "Strength of the L2 penalty of the probe (1 / C).", above=0)


@dataclass(frozen=True, kw_only=True)
class AgreementSettings:
    """Settings of `agreement`."""

    panel: ClassVar[Panel] = Panel.FIRST

    bins: int = setting(10, "Bins of the reliability diagram.", least=2)
    most: int = setting(50, "Examples of disagreement to list, the surest first.", least=0)


@dataclass(frozen=True, kw_only=True)
class VarianceSettings:
    """Settings of `variance`."""

    panel: ClassVar[Panel] = Panel.FIRST

    metric: str | None = setting(None, "The metric to compare.  [default: the first, a task's official one]")


@dataclass(frozen=True, kw_only=True)
class SupplementarySettings(VarianceSettings):
    """Settings of `supplementary`."""

    examples: int | None = setting(
        1000, "Fit and score the probe on at most N examples of each split, evenly spread.", least=2
    )
    split: str = setting("dev", "The split to score the probe on.", choices=("dev", "test"), panel=Panel.DATA)
    pool: str = setting("mean", "One vector of a text for the probe: of its first token, or the mean.", choices=_POOLS)
    batch_size: int = setting(32, "Examples at a time.", least=1, panel=Panel.SPEED)


@dataclass(frozen=True, kw_only=True)
class ProjectionSettings:
    """Settings of `projections`."""

    panel: ClassVar[Panel] = Panel.FIRST


@dataclass(frozen=True, kw_only=True)
class ForecastSettings(_Settings):
    """Settings of `forecast`."""

    layers: int | None = setting(None, "Layers of the student.", least=1)
    init: str | None = setting(None, "The start to look at the layers of.  [default: first and even]")
    split: str = setting("train", "The split whose examples are used.", choices=SPLITS, panel=Panel.DATA)
    examples: int | None = setting(512, "Use N examples for the angles, evenly spread over the split.", least=1)
    steps: int = setting(36, "Training steps of the trial of each start, 12 to 48; 0 leaves it out.", least=0, most=48)
    lr: float = setting(5e-5, "Learning rate of the trial.", above=0)
    seed: int = setting(0, "Seed of the student, the trial and the shuffles.", least=0)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for an analysis: models or runs as the user named them, and all settings that were given by name."""

    subjects: Sequence[str]
    own: Any
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis as a command.

    Attributes:
        name: the command, and the name of its files.
        about: its help.
        metavar: what it is given: models, runs.
        takes: the help of that.
        least, most: how many of them; None for any number.
        settings: its own settings.
        reads: whether it reads examples, so that the settings of data apply.
    """

    name: str
    about: str
    metavar: str
    takes: str
    settings: type
    least: int = 1
    most: int | None = 1
    reads: bool = True

    @property
    def run(self) -> Callable[[Request], Finding]:
        """The function that carries it out; imports the model library."""
        found: Callable[[Request], Finding] = import_module(f"stillery.jobs.analyses.{self.name.replace('-', '_')}").run
        return found

    def files(self, out: Path) -> list[Path]:
        """Return the files it writes to a folder."""
        return [out / f"{self.name}.{suffix}" for suffix in ("json", "svg", "png")]


_STUDENT = "A run, or a student's folder with --teacher."

ANALYSES: dict[str, Analysis] = {
    one.name: one
    for one in (
        Analysis(
            name="forecast", metavar="TEACHER", takes="The teacher: a run, a folder, or a name on the hub.",
            settings=ForecastSettings,
            about="Before training: how much the choice of layers may matter here, and which start learns faster.\n\n"
            "The angles between teacher layers, seen from the untrained student, are compared with those of shuffled "
            "tokens; the starts are compared by a trial of a few dozen steps, as by `--init auto`.",
        ),
        Analysis(
            name="angles", metavar="STUDENT", takes=_STUDENT, settings=AnglesSettings,
            about="The angle between teacher layers as seen from each student layer.\n\n"
            "Where it is acute, matching either layer moves the student in a similar direction. With snapshots in the "
            "run's folder (--snapshot-every) also how it changes while training.",
        ),
        Analysis(
            name="similarity", metavar="STUDENT", takes=_STUDENT, settings=SimilaritySettings,
            about="How alike each layer of the student is to each of its teacher: cosine and linear CKA.",
        ),
        Analysis(
            name="layer-divergence", metavar="MODEL...", most=None, settings=DivergenceSettings,
            takes="A model, or several, each on the data of its own run.",
            about="How different a model's layers are from each other: KL divergence of their softmaxed states.",
        ),
        Analysis(
            name="attention-weights", metavar="STUDENT...", most=None, takes=_STUDENT, settings=AttentionSettings,
            about="Which teacher layers the layers of a student attend to: the weights of ALP-KD.",
        ),
        Analysis(
            name="flatness", metavar="MODEL...", most=None, settings=FlatnessSettings,
            takes="Models or runs to compare on the same examples.",
            about="Loss of models against the radius of Gaussian noise added to their embedding output.",
        ),
        Analysis(
            name="loss-surface", metavar="RUN RUN | START MODEL MODEL", least=2, most=3, settings=SurfaceSettings,
            takes="Two runs with the same start, or the start and two models.",
            about="Loss on the plane through two students and their common start, with the paths of their snapshots.",
        ),
        Analysis(
            name="probe", metavar="MODEL...", most=None, settings=ProbeSettings,
            takes="Models or runs to compare on the same examples.",
            about="How much of the labels a linear classifier reads from each layer of a frozen model.",
        ),
        Analysis(
            name="variance", metavar="RUN...", most=None, settings=VarianceSettings, reads=False,
            takes="Finished runs of several seeds, or folders of runs or of a study.",
            about="Distribution of the scores of each method over seeds.",
        ),
        Analysis(
            name="supplementary", metavar="RUN...", most=None, settings=SupplementarySettings, reads=False,
            takes="Finished runs with and without --ild-task or --ild-data, or folders of them.",
            about="Which texts for the hidden-state stage help which task, and what goes with it.\n\n"
            "Runs with --snapshot-every have a snapshot of the end of that stage: a linear probe of the task on it "
            "shows how similar texts and task are.",
        ),
        Analysis(
            name="agreement", metavar="RUN", settings=AgreementSettings, reads=False,
            takes="A finished run of stillery distill.",
            about="Where student and teacher disagree: calibration, confidence, length, labels, and the examples.",
        ),
        Analysis(
            name="projections", metavar="RUN...", most=None, settings=ProjectionSettings, reads=False,
            takes="Finished runs of a method with trained projections.",
            about="Rank and alignment of trained projections: has one collapsed?",
        ),
    )
}  # fmt: skip
"""All analyses by name, in the order of the help."""
