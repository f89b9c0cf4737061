"""What every group of policy keys shares: strictness, and the number types with their ranges."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

Ratio = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0, le=31_536_000.0)]
PositiveSeconds = Annotated[float, Field(gt=0.0, le=31_536_000.0)]
Replicas = Annotated[int, Field(ge=0, le=100_000)]
SomeReplicas = Annotated[int, Field(ge=1, le=100_000)]
BatchSize = Annotated[int, Field(ge=1, le=1_000_000)]


class Group(BaseModel):
    """Shared strictness: unknown keys are errors, values are immutable, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse ``max: true``, which would otherwise be read as 1."""
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and field.annotation is not bool:
            raise PydanticCustomError("switch", "a switch (true or false) where a value is wanted")
        return value
