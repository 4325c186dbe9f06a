-- The beginning of every script that works on the shared slot: data that belongs to no single session.
--
-- Keys. KEYS[1] is lp:<format>:<namespace>:{*}; every other key is KEYS[1] with a suffix, so all of them are in one slot of a
-- cluster. In the list, g is KEYS[1].
--   sessions    :due      sessions by when to examine them next; also the list of open sessions (a sorted set)
--               :keys     the same sessions in the order of their keys, for listings
--               :away     those that are detached
--               :p:<principal>  a principal's sessions by when they were last seen, at the earliest
--               :of       the principal of each session
--   log bytes   :size     sessions by the bytes that they reported, '' their sum   :fin  sessions by their oldest finished stream
--               :heavy    principals by the bytes of their sessions
--               :ps:<principal>, :pf:<principal>  the same as :size and :fin, of one principal's sessions
--               :ling     closed sessions with streams that stay for readers, by their end   :lb  their bytes, '' the sum
--   kept bytes  :kept     the allowance of each session and handle: bytes, count (state.py), principal   :kp  sums by
-- principal, '' of all
--   closings    :told     closed sessions whose listeners may not have been called
--   resources   :sub:<uri>  the sessions that subscribe to a resource
--   state       :areas, :sp:<principal>  areas of handles by their end, all and one principal's   :states  principals' own
--   tasks       :tasks, :tp, :t:<task>, :to, :to:<owner>  (tasks.lua)
--   replicas    :rep, :lease, :seen, :own:<owner>, :in:<replica>, :took:<name>, :news, :incarnations  (replicas.lua)
--   other       :secret:<name>   :proof  when readiness was last proved
--               lp:0:<namespace>:{*}:format  the newest format whose release had a lease here; it belongs to no format
-- <principal>, <uri> and <name> are hashes.
--
-- Of sessions this slot has hints only (redis/sessions.py); everything else is decided here. Scripts do a bounded number of steps
-- (LIMIT, COUNT), because everyone waits while one runs. A plain call runs none of them.
--
-- Sent again: each script sets values instead of adding to them, or finds by a name or version that its work is done.
-- Every key has a time to live, renewed by each script that uses it.
local g = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local me, op, again = ARGV[2], ARGV[3], ARGV[4] == '1'
local prefix = string.match(g, '^(.-){')
local SLACK = 3600000
local NEWS = 1000

-- Let a shared key exist at least this long.
local function live(key, milliseconds)
  if redis.call('PTTL', key) < milliseconds then redis.call('PEXPIRE', key, milliseconds) end
end

-- Record whether a session is detached: '1' or '0'.
local function note_away(key, away)
  if away == '1' and redis.call('ZSCORE', g .. ':due', key) then
    redis.call('SADD', g .. ':away', key)
    live(g .. ':away', redis.call('PTTL', g .. ':due'))
  else
    redis.call('SREM', g .. ':away', key)
  end
end

-- Since when a replica has renewed its lease without a gap, when it last did, and the length of the lease.
local function seen(owner)
  local since, renewed, life = string.match(redis.call('HGET', g .. ':seen', owner) or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(since), tonumber(renewed), tonumber(life)
end

-- Wake up replicas: one (bell:<replica>) or all (bell). The message may be lost (wakeups.py).
local function publish(channel, what, key, name)
  redis.call('PUBLISH', prefix .. channel, what .. ' ' .. key .. ' ' .. name .. ' ' .. me)
end

-- Record a session's log bytes and its oldest finished stream (0: none), for the whole store and for its principal.
-- Returns the
-- sum over all sessions.
local function resize(key, bytes, oldest)
  local before = tonumber(redis.call('ZSCORE', g .. ':size', key) or 0)
  local total = redis.call('ZINCRBY', g .. ':size', bytes - before, '')
  if bytes > 0 then redis.call('ZADD', g .. ':size', bytes, key) else redis.call('ZREM', g .. ':size', key) end
  if oldest > 0 then redis.call('ZADD', g .. ':fin', oldest, key) else redis.call('ZREM', g .. ':fin', key) end
  if redis.call('ZCARD', g .. ':size') == 1 then redis.call('DEL', g .. ':size') end
  local principal = redis.call('HGET', g .. ':of', key)
  if principal then
    local sizes, finished = g .. ':ps:' .. principal, g .. ':pf:' .. principal
    local own = tonumber(redis.call('ZINCRBY', g .. ':heavy', bytes - before, principal))
    if own <= 0 then redis.call('ZREM', g .. ':heavy', principal) end
    if bytes > 0 then redis.call('ZADD', sizes, bytes, key) else redis.call('ZREM', sizes, key) end
    if oldest > 0 then redis.call('ZADD', finished, oldest, key) else redis.call('ZREM', finished, key) end
    for _, kept in ipairs({g .. ':heavy', sizes, finished}) do live(kept, 86400000) end
  end
  return tonumber(total)
end

-- The allowance of a session or handle, the count of its last report, and its principal; 0, 0, nil if nothing is known.
local function allowance(key)
  local bytes, count, principal = string.match(redis.call('HGET', g .. ':kept', key) or '', '^(%d+) (%d+) (.*)$')
  return tonumber(bytes or 0), tonumber(count or 0), principal
end

-- Record that it may keep so many bytes, and change the principal's sum and the sum of all.
local function allow(key, principal, before, bytes, count)
  if bytes > 0 then
    redis.call('HSET', g .. ':kept', key, string.format('%d %d %s', bytes, count, principal))
  else
    redis.call('HDEL', g .. ':kept', key)
  end
  for _, whose in ipairs({principal, ''}) do
    if redis.call('HINCRBY', g .. ':kp', whose, bytes - before) <= 0 then redis.call('HDEL', g .. ':kp', whose) end
  end
end

-- It was deleted.
local function disallow(key)
  local bytes, _, principal = allowance(key)
  if principal then allow(key, principal, bytes, 0, 0) end
end

-- Let the allowances exist as long as their sessions and handles.
local function keep_allowances(life)
  live(g .. ':kept', life)
  live(g .. ':kp', life)
end

-- Forget areas whose time is over, of :areas or :states, and their allowances.
local function expire_areas(place)
  repeat
    local ended = redis.call('ZRANGEBYSCORE', place, '-inf', now, 'LIMIT', 0, 1000)
    for _, key in ipairs(ended) do
      disallow(key)
      redis.call('ZREM', place, key)
    end
  until #ended < 1000
end
