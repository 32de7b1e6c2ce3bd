"""Another value than the default, that is allowed, for every key of the methods."""

from typing import Any, get_args

from forager.core.config import RunConfig, Scalar
from forager.core.methods.base import Settings
from forager.core.methods.catalogue import all_settings
from pydantic import ValidationError


def _candidates(default: Scalar, kind: Any) -> list[Scalar]:
    if get_args(kind):
        return [name for name in get_args(kind) if name != default]
    if isinstance(default, bool):
        return [not default]
    assert isinstance(default, int | float)
    return [default * 2 or type(default)(1), default / 2, default + 1]


def _other(kind: type[Settings], name: str) -> Scalar:
    field = kind.model_fields[name]
    for value in _candidates(field.default, field.annotation):
        try:
            kind.model_validate({name: value})
        except ValidationError:
            continue
        return value
    raise AssertionError(f"no other value for {kind.section}.{name}")


OTHER: dict[str, Scalar] = {
    key: _other(kind, name)
    for kind in all_settings()
    for key, name in zip(kind.own_keys(), kind.model_fields, strict=True)
}


def config_with(axis: str, method: str) -> RunConfig:
    """Return a config of one method and of the plain choices elsewhere."""
    return RunConfig.model_validate({axis: method})
