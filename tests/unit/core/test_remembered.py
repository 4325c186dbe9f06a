"""Results that are remembered for texts of clients."""

from limpet.core.remembered import remembered


def test_results_are_remembered_only_for_the_last_short_texts() -> None:
    computed: list[str] = []

    @remembered(2, longest=3)
    def upper(text: str) -> str:
        computed.append(text)
        return text.upper()

    assert [upper(text) for text in ("abc", "abc", "long", "long", "d", "e", "abc")] == [
        "ABC", "ABC", "LONG", "LONG", "D", "E", "ABC",
    ]  # fmt: skip
    assert computed == ["abc", "long", "long", "d", "e", "abc"]
