"""PostgresStore: the contract of stores on PostgreSQL.

The commands are rules and commits (`stores/shared`). Every operation is one statement, which is one transaction
(`sql/functions.sql`), in one round trip (`lanes.py`). A command whose answer was lost is sent again and counts once.
Time is that of the server.
"""

from limpet.stores.postgres.replicas import PostgresReplicas
from limpet.stores.postgres.sessions import PostgresSessions
from limpet.stores.postgres.state import PostgresState


class PostgresStore(PostgresSessions, PostgresState, PostgresReplicas):
    """Sessions that outlive this process, and that every replica can serve."""
