"""The sections `optimizer`, `embeddings`, `train` and `checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from hotrow.config.learning_rate import LearningRate
from hotrow.config.section import Section, problem


class OptimizerConfig(Section):
    """Optimizer of the dense part; each table has its own (see `TableSection`).

    Attributes:
        name: Keras' optimizer.
        learning_rate: its step size.
        clipnorm: largest norm of the gradient of each variable.
        global_clipnorm: largest norm of the gradients of all variables together.
    """

    name: Literal["adam", "adagrad", "rmsprop", "sgd"] = "adam"
    learning_rate: LearningRate = 0.001
    clipnorm: float | None = Field(default=None, gt=0)
    global_clipnorm: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_way_to_clip(self) -> OptimizerConfig:
        if self.clipnorm is not None and self.global_clipnorm is not None:
            raise problem("clipnorm and global_clipnorm are both given; leave one out")
        return self


class EmbeddingsConfig(Section):
    """Settings of all tables together.

    Attributes:
        global_clipnorm: largest norm of the gradients of all rows of a step together.
    """

    global_clipnorm: float | None = Field(default=None, gt=0)


ClassWeight = Annotated[float, Field(ge=0)]
ValidMetric = Literal["auc", "logloss"]


class EarlyStoppingConfig(Section):
    """When a run ends before its last epoch.

    Attributes:
        metric: a metric of the validation file.
        patience: the run ends after this many validations in a row without a better one.
        min_delta: a validation is better if the metric improves by more than this.
    """

    metric: ValidMetric = "auc"
    patience: int = Field(default=3, ge=1)
    min_delta: float = Field(default=0.0, ge=0)


class TrainConfig(Section):
    """Length and order of the training.

    Attributes:
        epochs: passes over the training file.
        max_steps: stop after this many steps, whatever the epochs; None: no bound. A run that
            starts from another one counts only its own steps.
        eval_every_steps: validate after every this many steps, besides the end of each epoch.
        shuffle: shuffle the rows by the run's seed, differently in each epoch.
        shuffle_buffer: number of rows shuffled at once, held in memory.
        deterministic: refuse TensorFlow ops whose result may differ between two runs, so that a
            resumed run equals an uninterrupted one. On by default: on a CPU it has no measurable
            cost.
        class_weight: factor of the loss for the rows of a label; a missing label has factor 1.
            Metrics do not change. None: both are 1.
        early_stopping: end the run when validations no longer improve; None: never.
    """

    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    eval_every_steps: int | None = Field(default=None, ge=1)
    shuffle: bool = True
    shuffle_buffer: int = Field(default=65_536, ge=1)
    deterministic: bool = True
    class_weight: dict[Literal[0, 1], ClassWeight] | None = Field(default=None, min_length=1)
    early_stopping: EarlyStoppingConfig | None = None

    @field_validator("class_weight", mode="before")
    @classmethod
    def _labels_as_numbers(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        # `--set train.class_weight.1=5` gives the label as a text.
        names = {"0": 0, "1": 1}
        return {names.get(label, label): weight for label, weight in value.items()}


class CheckpointConfig(Section):
    """When and how checkpoints are written, besides the one at the end of the run.

    Attributes:
        every_steps: number of steps between two checkpoints.
        every_seconds: also write one when this much time has passed since the last; None: no bound.
        keep: number of newest checkpoints that stay on disk, with those that they build on.
        best: metric of the validation file whose best checkpoint also stays; None: the metric of
            `train.early_stopping`, or none.
        full_every: every n-th checkpoint is full, the others hold changes since the previous one. 1
            (default): all are full, so no two checkpoints share files.
        asynchronous: write while training continues. This needs memory for the rows that change
            meanwhile (at most 10 % of all tables, at least 64 MiB). False: training waits.
    """

    every_steps: int = Field(default=5000, ge=1)
    every_seconds: float | None = Field(default=None, gt=0)
    keep: int = Field(default=3, ge=1)
    best: ValidMetric | None = None
    full_every: int = Field(default=1, ge=1)
    asynchronous: bool = True
