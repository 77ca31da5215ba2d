"""The sections `tables.<name>.admission` and `tables.<name>.expiry`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hotrow.config.section import Section, from_spec
from hotrow.spec import Admission, Expiry


class AdmissionConfig(Section):
    """When a key gets a row; see `hotrow.Admission`.

    Attributes:
        occurrences: a key gets a row with its n-th occurrence.
        filter: `counter` counts exactly, `bloom` in fixed memory, sometimes too much.
        expected_keys: `bloom`: waiting keys that it is sized for.
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
        """Returns it as the tables take it."""
        return from_spec(Admission, self.model_dump())


class ExpiryConfig(Section):
    """When a row is given up; see `hotrow.Expiry`.

    Attributes:
        after_steps: a row expires so many steps after its last update.
        rare_count: a row with fewer lookups expires after `rare_after_steps`.
        rare_after_steps: goes with `rare_count`.
        sweep_steps: a sweep over all rows takes so many steps.
    """

    after_steps: int | None = Field(default=None, ge=1, lt=2**32)
    rare_count: int | None = Field(default=None, ge=1, lt=2**32)
    rare_after_steps: int | None = Field(default=None, ge=1, lt=2**32)
    sweep_steps: int = Field(default=1000, ge=1, lt=2**32)

    @model_validator(mode="after")
    def _fits_spec(self) -> ExpiryConfig:
        self.as_spec()
        return self

    def as_spec(self) -> Expiry:
        """Returns it as the tables take it."""
        return from_spec(Expiry, self.model_dump())
