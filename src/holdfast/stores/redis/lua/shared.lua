-- What every script of the shared indexes begins with. KEYS[1] names their slot; a key is KEYS[1] with a suffix.
--   :due     sessions by when to look at them next; also the list of those that live
--   :p:<principal>  a principal's sessions by when they were last seen, at the earliest
--   :size    sessions by the bytes they reported, '' their sum   :fin  sessions by their oldest finished stream
--   :of      the principal of each session   :heavy  principals by the bytes of their sessions
--   :ps:<principal>, :pf:<principal>  the same as :size and :fin, of a principal's sessions
--   :ling    closed sessions of which something is left for readers, by its end   :lb  its bytes, '' their sum
--   :told    closed sessions whose listeners may not know   :sub:<uri>  subscribers of a resource
--   :scopes, :sp:<principal>  handles' scopes by their end   :states  principals' own   :tasks, :tp, :t:<task>  tasks
--   :kept    what each session and handle may keep: bytes, count (kept.lua), principal   :kp  the sum of each principal's
--   :to      owners of tasks   :to:<owner>  the tasks of one
--   :rep     replicas by the end of their lease, 0 if declared dead   :lease  their incarnations   :own:<owner>  where
--            it has work   :seen  since when each has renewed without a gap, when last, and for how long
--   :proof   when readiness was last proved
--   hf:0:<namespace>:{*}:format  the newest format whose release has had a lease; of no format itself
--   :in:<replica>  requests put to it   :news  what all replicas are told   :secret:<name>
-- Hints only where a session is meant: what they say is checked again in the session's own slot.
local g = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local me, op, again = ARGV[2], ARGV[3], ARGV[4] == '1'
local prefix = string.match(g, '^(.-){')
local SLACK = 3600000

-- Let a shared key live at least this long.
local function live(key, milliseconds)
  if redis.call('PTTL', key) < milliseconds then redis.call('PEXPIRE', key, milliseconds) end
end

-- Since when a replica has renewed its lease without a gap, when it last did, and for how long.
local function seen(owner)
  local since, renewed, life = string.match(redis.call('HGET', g .. ':seen', owner) or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(since), tonumber(renewed), tonumber(life)
end

local function publish(channel, what, key, name)
  redis.call('PUBLISH', prefix .. channel, what .. ' ' .. key .. ' ' .. name .. ' ' .. me)
end

-- A session has another size: for the whole store, and for its principal.
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

-- What a session or handle may keep, by the count of its last report. 0 bytes: it is gone.
local function allowance(key)
  local bytes, count, principal = string.match(redis.call('HGET', g .. ':kept', key) or '', '^(%d+) (%d+) (.*)$')
  return tonumber(bytes or 0), tonumber(count or 0), principal
end

local function allow(key, principal, before, bytes, count)
  if bytes > 0 then
    redis.call('HSET', g .. ':kept', key, string.format('%d %d %s', bytes, count, principal))
  else
    redis.call('HDEL', g .. ':kept', key)
  end
  if redis.call('HINCRBY', g .. ':kp', principal, bytes - before) <= 0 then redis.call('HDEL', g .. ':kp', principal) end
end

local function disallow(key)
  local bytes, _, principal = allowance(key)
  if principal then allow(key, principal, bytes, 0, 0) end
end

-- Let the allowances live as long as what they are for.
local function keep_allowances(life)
  live(g .. ':kept', life)
  live(g .. ':kp', life)
end

-- Forget scopes whose time is over, of :scopes or :states, and what they were allowed to keep.
local function expire_scopes(place)
  repeat
    local ended = redis.call('ZRANGEBYSCORE', place, '-inf', now, 'LIMIT', 0, 1000)
    for _, key in ipairs(ended) do
      disallow(key)
      redis.call('ZREM', place, key)
    end
  until #ended < 1000
end
