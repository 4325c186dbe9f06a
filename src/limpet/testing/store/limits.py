"""Limits for tests: also those that follow from another limit can be given."""

from limpet.config import Limits


def tight(**values: float) -> Limits:
    """Return limits with these values.

    A store that is bounded by a part of `Limits.store_bytes` can be filled with a few bytes.

    Raises:
        TypeError: there is no such limit.
    """
    own = {name: value for name, value in values.items() if name in Limits.__struct_fields__}
    limits = Limits(**own)  # type: ignore[arg-type]
    for name in values.keys() - own.keys():
        if not hasattr(limits, name):
            raise TypeError(f"Limits has no {name}")
        limits.__dict__[name] = values[name]
    return limits
