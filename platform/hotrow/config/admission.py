"""The sections `tables.<name>.admission` and `tables.<name>.expiry`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hotrow.config.section import Section, from_spec
from hotrow.spec import Admission, Expiry
from hotrow.spec.admission import MOST_TOMBSTONES


class AdmissionConfig(Section):
    """When a key gets a row; see `hotrow.Admission`.

    Attributes:
        occurrences: n; a key gets a row at its n-th occurrence.
        filter: `counter` counts exactly; `bloom` uses fixed memory, and may count too high.
        expected_keys: `bloom`: number of waiting keys for which the filter is sized.
        error_rate: `bloom`: share of keys that may be admitted early.
    """

    occurrences: int = Field(ge=1, lt=2**32)
    filter: Literal["counter", "bloom"] = "counter"
    expected_keys: int | None = Field(default=None, ge=1)
    error_rate: float = Field(default=0.01, gt=0, lt=1)

    @model_validator(mode="after")
    def _fits_spec(self) -> AdmissionConfig:
        self.as_spec()
        return self

    def as_spec(self) -> Admission:
        """Returns the admission in the form of the tables."""
        return from_spec(Admission, self.model_dump())


class ExpiryConfig(Section):
    """When a row is removed; see `hotrow.Expiry`.

    Attributes:
        after_steps: a row expires this many steps after its last update.
        rare_count: a row with fewer lookups than this expires after `rare_after_steps`.
        rare_after_steps: set it together with `rare_count`.
        sweep_steps: a sweep over all rows takes this many steps.
        tombstones: the most expired keys that a table keeps for the next incremental export.
    """

    after_steps: int | None = Field(default=None, ge=1, lt=2**32)
    rare_count: int | None = Field(default=None, ge=1, lt=2**32)
    rare_after_steps: int | None = Field(default=None, ge=1, lt=2**32)
    sweep_steps: int = Field(default=1000, ge=1, lt=2**32)
    tombstones: int = Field(default=MOST_TOMBSTONES, ge=0, lt=2**32)

    @model_validator(mode="after")
    def _fits_spec(self) -> ExpiryConfig:
        self.as_spec()
        return self

    def as_spec(self) -> Expiry:
        """Returns the expiry in the form of the tables."""
        return from_spec(Expiry, self.model_dump())
