"""The Keras layer over the tables: `hotrow.DistributedEmbedding`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from hotrow import spec
from hotrow.errors import InvalidArgumentError, UnimplementedError
from hotrow.ops.anchor import SLOTS, UNCHANGED, AnchorVariable
from hotrow.ops.batch_keys import count_keys, counts_of_all, keys_in_order, rank_features
from hotrow.ops.features import flatten
from hotrow.ops.keras_saving import KerasSaving
from hotrow.ops.layer_tables import (
    as_features,
    check_names,
    device_of,
    layout_of,
    owned,
    warn_of_two_layers,
)
from hotrow.ops.learning_rates import LearningRates
from hotrow.ops.lookup import Lookup, LookupLayout, TrainingLookup, refuse_gradient
from hotrow.ops.placement import CPU
from hotrow.ops.ranks import LONE, Ranks
from hotrow.ops.table import Table
from hotrow.ops.tf_distribute import refuse_strategy
from hotrow.spec import FeatureConfig

Update = Literal["step", "backward"]


@keras.saving.register_keras_serializable("hotrow")
class DistributedEmbedding(keras.layers.Layer):  # type: ignore[misc]
    """Looks up and pools the rows of all features in one fused op.

    B samples, N keys, D the width of the feature's table. Each table's optimizer updates its rows
    when the model's optimizer takes its step: give that one all `trainable_variables` of the layer.
    Gradient accumulation, and adding or scaling gradients by hand, apply to rows too. Clipping by a
    Keras optimizer (`clipnorm` and the like) and weight decay act on dense weights only. Loss
    scaling and averaged weights are refused: use mixed_bfloat16 for mixed precision.

    `training=False` never inserts a row, never learns, never counts and never moves a clock: an
    unknown key reads the table's default row, and the anchor has no gradient. Weights of keys are
    data and get no gradient.

    `model.save`, `save_weights` and `ModelCheckpoint` save the tables. `get_weights` does not, and
    therefore `keras.callbacks.EarlyStopping(restore_best_weights=True)` does not either: use
    `hotrow.EarlyStopping`. `tf.train.Checkpoint` is refused.

    Args:
        feature_configs: one feature or several. Several may point at one table.
        seed: with the names of table and key, it determines the initial values of the rows.
        update: "step" applies gradients when the optimizer takes its step. "backward" applies them
            in the backward pass. This is faster, but allows one use of the layer a step and no
            gradient accumulation (a second backward pass in a step is refused).
        global_clipnorm: c, or None. The gradients of all distinct keys of all tables are multiplied
            by min(1, c / their norm) before the tables' optimizers apply them.
        ranks: the ranks that train the model together (`start_ranks`); `sharding` of each table
            sets how it is split over them. All ranks call the layer in the same order, each with
            its slice of the batch, which may be empty. The gradient of the loss of the whole batch
            is the sum over ranks.

    Raises:
        InvalidArgumentError: no feature, a repeated name, a table with two configurations, tables
            in different places, an unknown learning-rate schedule, or dtype policy float16.
        FailedPreconditionError: the GPU of a table's cache does not exist.
        UnimplementedError: inside a strategy of `tf.distribute` other than the default one.
    """

    def __init__(
        self,
        feature_configs: FeatureConfig | Sequence[FeatureConfig],
        *,
        seed: int = 0,
        update: Update = "step",
        global_clipnorm: float | None = None,
        ranks: Ranks = LONE,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        # Keys' weights stay float32 whatever the policy, hence no autocast of inputs.
        super().__init__(name=name, dtype=dtype, trainable=trainable, autocast=False)
        refuse_strategy(self.name)
        if self.compute_dtype == "float16":
            raise InvalidArgumentError(
                "DistributedEmbedding: dtype policy float16 needs loss scaling, which is not "
                "supported; use 'mixed_bfloat16' or 'float32'"
            )
        if not 0 <= seed < 2**64:
            raise InvalidArgumentError(f"seed is {seed}; must be in [0, 2^64)")
        if update not in ("step", "backward"):
            raise InvalidArgumentError(f"update is {update!r}; must be 'step' or 'backward'")
        self._layout = layout_of(as_features(feature_configs))
        stale = [table.name for table in self._layout.tables if table.staleness]
        if stale and (update == "step" or global_clipnorm is not None):
            raise InvalidArgumentError(
                f"table {stale[0]!r} has staleness, which goes with update='backward' and without "
                "global_clipnorm: gradients are summed over steps before their owner sees them"
            )
        if global_clipnorm is not None and not 0 < global_clipnorm < float("inf"):
            raise InvalidArgumentError(
                f"global_clipnorm is {global_clipnorm!r}; must be positive, or None"
            )
        self.supports_jit = False
        self._seed = seed
        self._update = update
        self._ranks = ranks
        self._tables = {
            config.name: Table(owned(config, number, ranks), seed, ranks)
            for number, config in enumerate(self._layout.tables)
        }
        self._handles = [table.handle for table in self._tables.values()]
        self._lookup_override: Lookup | None = None
        self._saving = KerasSaving(self.name, self._tables)
        self._learning_rates = LearningRates(list(self._tables.values()))
        self._global_clipnorm = global_clipnorm
        at_commit = update == "step"
        rates = self._learning_rates if at_commit else self._learning_rates.unscheduled
        self._device = device_of(self.name, self._tables.values())
        self.anchor = AnchorVariable(
            self._handles, self._device, rates, global_clipnorm, ranks.size > 1
        )
        self.built = True
        if ranks.size == 1:
            warn_of_two_layers(self, self._layout.tables)

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables by name."""
        return dict(self._tables)

    @property
    def layout(self) -> LookupLayout:
        """The tables and features, in the order of the op."""
        return self._layout

    def call(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Returns the pooled rows of every feature, in the layer's compute dtype.

        Args:
            inputs: keys by feature, for all features: int64, int32 or strings, dense [B] or [B, k],
                ragged or sparse [B, None]. The key of a string is Fingerprint64 of the table's
                name, 0x1f and the string.
            weights: weights of the keys by feature, of the same kind and shape as the keys.
            training: insert unknown keys, and learn. None is False, and refuses a gradient: Keras
                passes None below a model whose `call` has no argument `training`.

        Returns:
            By feature: [B, D]; without combiner [B, D], [B, k, D] or ragged [B, None, D].

        Raises:
            InvalidArgumentError: a feature missing or unknown, keys that are not integers.
            UnimplementedError: inside a strategy of `tf.distribute` other than the default one.
        """
        refuse_strategy(self.name)
        self._check_names("inputs", inputs, required=True)
        self._check_names("weights", weights or {}, required=False)
        flat = [
            flatten(f, inputs[f.name], (weights or {}).get(f.name)) for f in self._layout.features
        ]
        pooled = self._lookup(training)(self._layout, flat)
        return {
            config.name: tf.cast(f.shape(rows), self.compute_dtype)
            for config, f, rows in zip(self._layout.features, flat, pooled, strict=True)
        }

    def _lookup(self, training: bool | None) -> Lookup:
        if self._lookup_override is not None:
            return self._lookup_override
        # A constant has no gradient. Keras would compute the gradients of frozen layers, too, and a
        # backward pass inserts rows.
        learns = bool(training) and self.trainable
        with tf.device(CPU):
            anchor = self.anchor.value if learns else tf.fill([SLOTS], UNCHANGED)
            if training is None and self.trainable:
                anchor = refuse_gradient(self.anchor.value)
        in_backward = self._update == "backward"
        if learns and in_backward:
            learning_rates = self._learning_rates(checked=True)
        else:
            learning_rates = self._learning_rates.unscheduled()
        return TrainingLookup(
            self._handles,
            self._device,
            anchor,
            learning_rates,
            insert=learns,
            update_in_backward=in_backward,
            global_clipnorm=self._global_clipnorm,
            collective=self._ranks.size > 1,
        )

    @contextlib.contextmanager
    def looking_up_with(self, lookup: Lookup) -> Iterator[None]:
        """Makes calls inside this context look rows up with `lookup`; exports trace it so."""
        previous, self._lookup_override = self._lookup_override, lookup
        try:
            yield
        finally:
            self._lookup_override = previous

    def count_params(self) -> int:
        """Returns how many weights the rows of the tables have now (on this rank)."""
        return sum(table.size * len(table.columns) for table in self._tables.values())

    def compute_output_shape(
        self, inputs_shape: Mapping[str, Any], weights_shape: Any = None
    ) -> dict[str, tuple[int | None, ...]]:
        """Returns the shape of every feature's output; see `call`."""
        shapes = {}
        for feature in self._layout.features:
            given = tuple(inputs_shape[feature.name])
            keep = given if feature.resolved_combiner is None else given[:1]
            shapes[feature.name] = (*keep, feature.table.embedding_dim)
        return shapes

    # --- the device tier --------------------------------------------------------------------------

    def prefetch(
        self,
        batches: Sequence[Mapping[str, Any]],
        weights: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Prefetches rows of the next batches into the caches of their tables, on other threads.

        Call it with a window: the inputs of the next k batches in order. Make the call when the
        first batch of the previous window begins; at the start, call it for the first and the
        second window. Results of the layer do not change. Tables without a cache are skipped.

        On several ranks the keys of each batch go to their owners while the previous batch is
        trained, also without a cache. All ranks make the same calls and train the batches in this
        order; another order fails on all ranks.

        Args:
            batches: dictionaries of all features, as `call` takes them: int64 or int32, dense [B]
                or [B, k], ragged or sparse [B, None]; eager tensors or arrays.
            weights: weights of each batch, as `call` takes them; None: none. Not needed on one
                rank.

        Raises:
            InvalidArgumentError: a feature missing or unknown, keys that are not integers, weights
                of more or fewer batches, a call inside a `tf.function`.
            OutOfRangeError: a key outside its table's vocabulary.
        """
        batches = list(self._on_the_host("prefetch", batches))
        if self._ranks.size > 1:
            if weights is not None and len(weights) != len(batches):
                raise InvalidArgumentError(
                    f"prefetch: weights of {len(weights)} batches, and {len(batches)} batches; "
                    "give those of each, or None"
                )
            attributes = self._layout.op_attributes(self._handles)
            for number, batch in enumerate(batches):
                given = weights[number] if weights else {}
                features = rank_features(self._layout.features, attributes, batch, given)
                Table.prefetch_on_ranks(self._tables.values(), features)
            return
        for table, keys in keys_in_order(self._cached_features(), batches).items():
            self._tables[table].prefetch(keys)

    def warm_up(self, batches: Iterable[Mapping[str, Any]], share: float = 0.7) -> dict[str, int]:
        """Fills the caches with the most frequent rows of a sample, and prefers them from now on.

        A key without a row is only counted, and preferred once training makes its row. On several
        ranks all call it together, each with its part of the sample.

        Args:
            batches: the sample: inputs as `prefetch` takes them, read one by one.
            share: largest share of each cache to fill, in [0, 1].

        Returns:
            By table with a cache, how many rows were brought in on this rank.

        Raises:
            InvalidArgumentError: as `prefetch`, or `share` is out of range.
            OutOfRangeError: a key outside its table's vocabulary.
        """
        features = self._cached_features()
        if not features:
            return {}
        counted = count_keys(features, self._on_the_host("warm_up", batches))
        if self._ranks.size > 1:
            counted = counts_of_all(counted, self._ranks)
        return {
            table: self._tables[table].warm_up(keys, counts, share)
            for table, (keys, counts) in counted.items()
        }

    def _cached_features(self) -> list[FeatureConfig]:
        return [f for f in self._layout.features if f.table.cache is not None]

    def _on_the_host(
        self, what: str, batches: Iterable[Mapping[str, Any]]
    ) -> Iterator[Mapping[str, Any]]:
        if not tf.executing_eagerly():
            raise InvalidArgumentError(
                f"{self.name}: {what} inside of tf.function; call it between steps, with the "
                "values of the batches"
            )
        for batch in batches:
            self._check_names(f"a batch of {what}", batch, required=True)
            yield batch

    def _check_names(self, what: str, given: Mapping[str, Any], required: bool) -> None:
        check_names(f"{self.name}: {what}", given, self._layout.features, required)

    def push_all(self) -> None:
        """Sends the owners of rows all pending gradients of their replicas (`Staleness`).

        All ranks call it together before a checkpoint, an export or an evaluation reads the rows of
        the whole model. It does nothing without staleness.
        """
        if any(table.config.staleness for table in self._tables.values()):
            Table.push_all(self._tables.values(), self._learning_rates(checked=False).numpy())

    # --- saving ---------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`; rows are not part of it."""
        return {
            **super().get_config(),
            "tables": [spec.table_to_dict(table) for table in self._layout.tables],
            "features": [
                {
                    "name": f.name,
                    "table": f.table.name,
                    "combiner": f.combiner,
                    "mask_value": f.mask_value,
                }
                for f in self._layout.features
            ],
            "seed": self._seed,
            "update": self._update,
            "global_clipnorm": self._global_clipnorm,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DistributedEmbedding:
        """Returns the layer that `get_config` describes, with empty tables."""
        config = dict(config)
        tables = {t["name"]: spec.table_from_dict(t) for t in config.pop("tables")}
        features = [
            FeatureConfig(f["name"], tables[f["table"]], f["combiner"], f.get("mask_value"))
            for f in config.pop("features")
        ]
        return cls(features, **config)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        """Refuses `tf.train.Checkpoint`, which would write the layer without its rows.

        Raises:
            UnimplementedError: TensorFlow writes or reads a checkpoint.
        """
        if save_type == "checkpoint":
            raise UnimplementedError(
                f"{self.name}: tf.train.Checkpoint does not keep the rows of tables; use "
                "model.save_weights or keras.callbacks.ModelCheckpoint"
            )
        return super()._trackable_children(save_type, **kwargs)

    def save_own_variables(self, store: Any) -> None:
        """Writes every table with all of its state; see `KerasSaving`.

        Raises:
            UnimplementedError: the tables are split over ranks.
        """
        self._saving.write(store)

    def save_assets(self, folder: str) -> None:
        """Writes the tables of a `.keras` archive."""
        self._saving.write_asset(folder)

    def load_own_variables(self, store: Any) -> None:
        """Replaces every table by what `save_own_variables` wrote.

        Raises:
            DataLossError: the file lacks a table, or has it with another name, width, type or
                optimizer.
            UnimplementedError: the tables are split over ranks.
        """
        self._saving.read(store)

    def load_assets(self, folder: str | None) -> None:
        """Reads the tables of a `.keras` archive; raises as `load_own_variables`."""
        self._saving.read_asset(folder)
