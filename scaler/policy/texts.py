"""A mapping of texts that is a value: never changed, compared and hashed by its content, as all in a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Texts(Mapping[str, str]):
    """An immutable mapping of text to text, for a field of a policy group. Its order is kept, and says nothing."""

    __slots__ = ("_texts",)

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts = dict(texts or {})

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __hash__(self) -> int:
        return hash(frozenset(self._texts.items()))

    def __repr__(self) -> str:
        return repr(self._texts)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validated as a dict of strict texts; dumped as a plain dict."""
        plain = core_schema.dict_schema(core_schema.str_schema(), core_schema.str_schema())
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.no_info_before_validator_function(_unwrapped, plain),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )


def _unwrapped(texts: Any) -> Any:
    return dict(texts) if isinstance(texts, Texts) else texts
