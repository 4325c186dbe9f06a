"""A small server, whole: one tool with structured output, one resource template, one prompt.

limpet serve examples/weather.py:server --http 127.0.0.1:8000
"""

from dataclasses import dataclass

from limpet import Context, Server

server = Server("weather", version="1.0", instructions="Forecasts by city.")

CLIMATES = {"Bergen": (9, "rain"), "Cairo": (29, "sun"), "Quito": (15, "clouds")}


@dataclass
class Forecast:
    city: str
    degrees: list[int]
    sky: str


@server.tool
async def forecast(city: str, ctx: Context, days: int = 3) -> Forecast:
    """Forecast a city's weather.

    Args:
        city: Its English name.
        days: How many days to look ahead.
    """
    warmth, sky = CLIMATES.get(city, (20, "unknown"))
    degrees = []
    for day in range(days):
        degrees.append(warmth + day % 3)
        await ctx.progress(day + 1, days)
    return Forecast(city, degrees, sky)


@server.resource("weather://{city}", mime_type="text/plain")
async def climate(city: str) -> str:
    """What the weather is like in general."""
    warmth, sky = CLIMATES.get(city, (20, "unknown"))
    return f"{city}: {warmth} degrees, {sky}"


@server.prompt
async def packing(city: str) -> str:
    """Ask what to pack."""
    return f"I travel to {city} for three days. Look up the forecast and tell me what to pack."


@server.completion(resource="weather://{city}", argument="city")
async def cities(value: str) -> list[str]:
    return [city for city in CLIMATES if city.lower().startswith(value.lower())]
