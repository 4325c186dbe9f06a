"""RedisStore: the contract of stores on Redis or Valkey, version 7 or later.

The commands are rules and commits (`stores/shared`). Every operation is one script on one slot, which is one atomic
step; `core.py` has the theory. A command whose reply was lost is sent again and counts once. Time is that of Redis.
"""

from limpet.stores.redis.replicas import ReplicaMethods
from limpet.stores.redis.sessions import SessionMethods
from limpet.stores.redis.wakeups import WakeUpMethods


class RedisStore(SessionMethods, ReplicaMethods, WakeUpMethods):
    """Sessions that outlive this process, and that every replica can serve."""
