"""The `model` section: architecture and sizes of the network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hotrow.config.section import Section

Width = Annotated[int, Field(ge=1)]


class _Network(Section):
    """Options of every architecture.

    Attributes:
        dropout: share of hidden units left out in training.
        l2: weight of the squared dense kernels in the loss.
        batch_norm: normalise hidden layers before their ReLU.
    """

    dropout: float = Field(default=0.0, ge=0, lt=1)
    l2: float = Field(default=0.0, ge=0)
    batch_norm: bool = False


class DlrmConfig(_Network):
    """DLRM (Naumov et al., 2019): bottom and top network around pairwise dot products.

    Attributes:
        bottom: widths over the dense columns; the last one is the embeddings' dim.
        top: hidden widths over the interactions; a last layer of width 1 follows.
    """

    arch: Literal["dlrm"]
    bottom: tuple[Width, ...] = ()
    top: tuple[Width, ...] = (256, 128)


class WideDeepConfig(_Network):
    """Wide & Deep (Cheng et al., 2016): a linear model beside a deep network, trained jointly.

    Attributes:
        hidden: hidden widths of the deep part; a last layer of width 1 follows.
    """

    arch: Literal["wide_deep"]
    hidden: tuple[Width, ...] = (256, 128)


class LogisticConfig(Section):
    """Logistic regression over all columns.

    Attributes:
        l2: weight of the squared dense kernel in the loss.
    """

    arch: Literal["logistic"]
    l2: float = Field(default=0.0, ge=0)


ModelConfig = DlrmConfig | WideDeepConfig | LogisticConfig
