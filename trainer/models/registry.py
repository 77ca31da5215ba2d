"""Builds a model by its architecture's name."""

from __future__ import annotations

from collections.abc import Callable

from hotrow.config import RunConfig
from hotrow.trainer.model_inputs import placeholder_inputs
from hotrow.trainer.models.dlrm import Dlrm
from hotrow.trainer.models.logistic import Logistic
from hotrow.trainer.models.ranker import Ranker
from hotrow.trainer.models.split import ALONE, Split
from hotrow.trainer.models.wide_deep import WideDeep

MODELS: dict[str, Callable[[RunConfig, Split], Ranker]] = {
    "dlrm": Dlrm,
    "logistic": Logistic,
    "wide_deep": WideDeep,
}


def build_model(config: RunConfig, split: Split = ALONE) -> Ranker:
    """Returns the model of `config` with all weights made, and empty tables.

    Equal configurations give equal weights: these depend only on the seed and on names.

    Args:
        config: the run's configuration.
        split: the ranks of its tables, and the sharding. A collective of these ranks.
    """
    model = MODELS[config.model.arch](config, split)
    model(placeholder_inputs(config), training=False)
    return model
