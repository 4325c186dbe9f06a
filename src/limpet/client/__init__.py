"""The client: the interface that users program against. `upstream` speaks the protocol for it."""

from limpet.auth.authorizer import Authorizer, Challenge
from limpet.client.changes import Change
from limpet.client.client import Client
from limpet.client.results import InputNeeded, ToolCallResult
from limpet.client.tasks import Task, TaskState
from limpet.upstream.settings import ClientLimits, ClientTimes

__all__ = [
    "Authorizer",
    "Challenge",
    "Change",
    "Client",
    "ClientLimits",
    "ClientTimes",
    "InputNeeded",
    "Task",
    "TaskState",
    "ToolCallResult",
]
