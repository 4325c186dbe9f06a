"""Ways to make a server keep calls, conversations and tokens for later, one function each; as in `memory_attacks.py`."""

from typing import Any, Final

from tests.attacks.issuer import LARGE
from tests.attacks.memory_attacks import Attack, Target, call, costly, modern, post
from tests.messages import metadata, modern_headers, request

_NO_TASKS: Final[Any] = metadata(capabilities={"elicitation": {"form": {}}})


async def tickets(target: Target) -> None:
    """Calls that are handed over, in both eras. Their clients never collect the result, and half of their sessions end."""
    sessions = [await target.session() for _ in target.some(20)]
    data = costly(12_000)

    async def one(number: int) -> None:
        tool = ("hold", "ask", "large")[number % 3]
        arguments = {"size": 300_000} if tool == "large" else {"data": data}
        if number % 2:
            params = {"name": tool, "arguments": arguments, "_meta": _NO_TASKS}
            await target.ask(
                post(request(number, "tools/call", params), headers=modern_headers("tools/call", params))
            )
        else:
            await target.ask(post(call(number, tool, **arguments), sessions[number % len(sessions)]))

    await target.many(6_000, one)


async def conversations(target: Target) -> None:
    """Requests of 2026-07-28 that each name a conversation of their own, and keep state in it."""

    async def one(number: int) -> None:
        tool, arguments = ("remember", {"size": 50_000}) if number % 10 == 0 else ("echo", {"text": "x"})
        params = {"name": tool, "arguments": arguments}
        await target.ask(modern(number, "tools/call", params, conversation=f"{number:0250}"))

    await target.many(20_000, one)


async def tokens(target: Target) -> None:
    """Tokens that are different each time: about some the authorization server says much, others it refuses slowly. The connections stay open."""

    async def one(number: int) -> None:
        token = f"{LARGE if number % 2 else 'wrong'}-{number:0200}"
        params = {"name": "echo", "arguments": {"text": "x"}, "_meta": _NO_TASKS}
        headers = {**modern_headers("tools/call", params), "Authorization": f"Bearer {token}"}
        await target.send(post(request(number, "tools/call", params), headers=headers))

    await target.many(8_000, one)


ACCOUNT_ATTACKS: Final[tuple[tuple[Attack, tuple[str, ...]], ...]] = (
    (tickets, ("--hand-over", "0.2")),
    (conversations, ("--affinity", "meta:conversation", "--state", "conversation")),
)
"""With the options of the server."""
