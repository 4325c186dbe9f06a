"""Invalid settings are refused when they are made, with a text that names a valid value."""

from math import inf, nan
from typing import Any, Final

import msgspec
import pytest

from limpet import Limits, Settings, Times
from limpet.config import _MAY_BE_ZERO, HttpSettings
from limpet.errors import ConfigError


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"response": "xml"}, "response='xml': choose adaptive, json, sse"),
        ({"path": "mcp"}, "path='mcp': an endpoint's path begins with a slash"),
        (
            {"allowed_hosts": "a.example"},
            r"allowed_hosts is a list of texts, not one text: write \['a.example'\]",
        ),
        ({"allowed_origins": "https://a.example"}, "allowed_origins is a list of texts"),
    ],
)
def test_an_invalid_setting_of_an_endpoint_is_refused_with_the_valid_ones(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        HttpSettings(**wrong)


def test_there_are_two_ways_to_treat_duplicates() -> None:
    wrong: Any = "ignore"
    with pytest.raises(ConfigError, match="duplicates='ignore': choose reject, isolate"):
        Settings(duplicates=wrong)


COUNTS: Final = [name for name, kind in Limits.__annotations__.items() if kind is int]
SECONDS: Final = [
    (group, name)
    for group in (Limits, Times)
    for name, kind in group.__annotations__.items()
    if kind in (float, float | None)
]
PAIRS: Final = ["stream_age", "retry"]


def test_every_number_is_one_of_three_kinds() -> None:
    named = {*COUNTS, *(name for _, name in SECONDS), *PAIRS}
    assert named == {*Limits.__struct_fields__, *Times.__struct_fields__}
    assert named >= _MAY_BE_ZERO


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_is_whole_not_negative_and_zero_only_where_zero_is_valid(name: str) -> None:
    zero = name in _MAY_BE_ZERO
    for wrong in (-1, 1.5, "5", True, None, inf, *(() if zero else (0,))):
        with pytest.raises(ConfigError) as refused:
            Limits(**{name: wrong})
        assert str(refused.value) == f"{name}={wrong!r}: give a whole number of {0 if zero else 1} or more"
    with pytest.raises(ConfigError, match=f"{name}={2**49}: give at most {2**48}"):
        Limits(**{name: 2**49})
    for right in (1, 10**9, *((0,) if zero else ())):
        assert getattr(Limits(**{name: right}), name) == right


@pytest.mark.parametrize(("group", "name"), SECONDS)
def test_seconds_are_finite_not_negative_and_zero_only_where_zero_is_valid(
    group: type[Limits] | type[Times], name: str
) -> None:
    zero = name in _MAY_BE_ZERO
    wrongs = (-0.1, inf, nan, "5", True, *(() if zero else (0, 0.0)))
    for wrong in (*wrongs, *(() if name in ("grace", "continue_after") else (None,))):
        with pytest.raises(ConfigError) as refused:
            group(**{name: wrong})
        how = "of 0 or more" if zero else "above 0"
        assert str(refused.value).startswith(f"{name}={wrong!r}: give a number of seconds {how}")
    large: Any = 1e300
    with pytest.raises(ConfigError, match=rf"{name}=1e\+300: give at most 3153600000"):
        group(**{name: large})
    lease = {"lease_renewal": {"lease": 20_000.0}, "lease": {"lease_renewal": 1.0}}.get(name, {})
    for right in (4, 4000.5, *((0,) if zero else ())):
        assert getattr(group(**{**lease, name: right}), name) == right


@pytest.mark.parametrize("name", PAIRS)
def test_two_times_are_a_smaller_and_a_larger_one(name: str) -> None:
    wrongs: list[Any] = [(2.0, 1.0), (-1.0, 1.0), (1.0, inf), (1.0,), 5.0, ("1", "2"), [1.0, 2.0]]
    for wrong in wrongs:
        with pytest.raises(
            ConfigError, match=f"{name}=.*: give two numbers of seconds, .* the smaller one first"
        ):
            Times(**{name: wrong})
    right: Any = (1.0, 1.0)
    assert getattr(Times(**{name: right}), name) == right


def test_a_lease_is_renewed_three_times_before_it_ends() -> None:
    with pytest.raises(ConfigError, match=r"lease_renewal=3\.0: renew a lease of 6 s at least every 2 s"):
        Times(lease=6.0)
    assert Times(lease=9.0).lease_renewal == 3.0


def test_an_endpoints_settings_can_be_read_from_json() -> None:
    """A test's server, for instance, gets them as an argument."""
    written = msgspec.json.encode(HttpSettings(allowed_hosts=["a.example"]))
    read = msgspec.json.decode(written, type=HttpSettings)
    assert list(read.allowed_hosts) == ["a.example"]
