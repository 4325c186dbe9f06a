"""The client: the interface that users program against. `upstream` speaks the protocol for it."""

from holdfast.auth.authorizer import Authorizer, Challenge
from holdfast.client.changes import Change
from holdfast.client.client import Client
from holdfast.client.results import InputNeeded, ToolCallResult
from holdfast.client.tasks import Task, TaskState
from holdfast.upstream.settings import ClientLimits, ClientTimes

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
