"""The README's example works as described, in every revision."""

import json

import pytest

from tests.example_client import session
from tests.schema import VERSIONS
from tests.support import async_test


@pytest.mark.parametrize("version", VERSIONS)
@async_test
async def test_the_weather_example_forecasts_describes_prompts_and_completes(version: str) -> None:
    async with session("weather", version) as (_, client, recorder):
        called = await client.result("tools/call", {"name": "forecast", "arguments": {"city": "Cairo"}})
        forecast = {"city": "Cairo", "degrees": [29, 30, 31], "sky": "sun"}
        assert json.loads(called["content"][0]["text"]) == forecast
        # 2025-03-26 has no structured content, so its clients are sent none.
        assert called.get("structuredContent") == (None if version == "2025-03-26" else forecast)
        assert "notifications/progress" in recorder.methods_seen()
        read = await client.result("resources/read", {"uri": "weather://Bergen"})
        assert read["contents"][0]["text"] == "Bergen: 9 degrees, rain"
        packing = await client.result("prompts/get", {"name": "packing", "arguments": {"city": "Quito"}})
        assert "Quito" in packing["messages"][0]["content"]["text"]
        ref = {"type": "ref/resource", "uri": "weather://{city}"}
        asked = {"ref": ref, "argument": {"name": "city", "value": "c"}}
        completed = await client.result("completion/complete", asked)
        assert completed["completion"]["values"] == ["Cairo"]
