"""How a link to a hosted object is opened: each link is a new run of the object."""

from typing import Any

from holdfast.backs.hosted.lifespan import Lifespan
from holdfast.backs.hosted.pipe import Dialect, HostedPipe
from holdfast.engine.caller import Caller
from holdfast.ports import Observer
from holdfast.upstream.link import Receiver, UpstreamLink
from holdfast.upstream.pipe_link import PipeLink
from holdfast.upstream.settings import ClientTimes


class HostedConnector:
    """Links to one hosted object. A run that had a client is never given to another one."""

    def __init__(
        self,
        server: Any,
        dialect: Dialect,
        lifespan: Lifespan,
        caller: Caller,
        times: ClientTimes,
        observer: Observer,
    ) -> None:
        self.remembered_as: str = ""
        self.probe_seconds: float | None = times.probe
        self.answer_seconds: float | None = times.connect
        self._server = server
        self._dialect = dialect
        self._lifespan = lifespan
        self._caller = caller
        self._observer = observer

    @property
    def last_words(self) -> str:
        """Return an empty text: there are no details about an object that does not answer."""
        return ""

    async def connect(self, receiver: Receiver) -> UpstreamLink:
        """Start a run.

        Raises:
            NotSent: the lifespan of the object has ended.
        """
        context = self._lifespan.context
        # `mcp` 1 runs every handler in the context of the run, which serves one principal only.
        context.run(self._dialect.identity.variable.set, self._dialect.user_of_run(self._caller))
        pipe = HostedPipe(self._server, self._dialect, receiver, context, self._observer)
        pipe.link = PipeLink(pipe, receiver, self._observer)
        return pipe.link

    async def aclose(self) -> None:
        """Do nothing: each link ends its own run."""
