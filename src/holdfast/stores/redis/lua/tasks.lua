-- Tasks, in the shared slot: their limits are of the whole store, and they are few.
--
--   :t:<task>    a hash: p principal, v version, d data, x when it is forgotten, o owner while it runs
--   :tasks       tasks by when they are forgotten
--   :tp          numbers of tasks by principal; their bytes ('b' before the principal), and the bytes of all ('')
--   :to          owners that have tasks   :to:<owner>  the tasks of one
--
-- A task belongs to the incarnation that opened it until it ends; the tasks of a dead incarnation are found through
-- :to and ended by other replicas. A change names the version that it changes. So if two replicas change a task at
-- once, one
-- succeeds and the other is refused; a change that is sent again finds its own value under the next version. A short result
-- is accepted even if the store is full, so that every task can end.

-- Whether so many more bytes fit, in total and for the principal.
local function has_room(principal, size, most, most_own)
  local got = redis.call('HMGET', g .. ':tp', '', 'b' .. principal)
  return tonumber(got[1] or 0) + size <= tonumber(most) and tonumber(got[2] or 0) + size <= tonumber(most_own)
end

local function count_bytes(principal, size)
  redis.call('HINCRBY', g .. ':tp', '', size)
  redis.call('HINCRBY', g .. ':tp', 'b' .. principal, size)
end

local function keep_task(key, life)
  redis.call('PEXPIRE', g .. ':t:' .. key, life + SLACK)
  live(g .. ':tasks', life + 2 * SLACK)
  live(g .. ':tp', life + 2 * SLACK)
end

local function own_task(key, life)
  redis.call('SADD', g .. ':to', me)
  redis.call('SADD', g .. ':to:' .. me, key)
  live(g .. ':to', life + 2 * SLACK)
  live(g .. ':to:' .. me, life + 2 * SLACK)
end

local function disown_task(key, owner)
  if owner then redis.call('SREM', g .. ':to:' .. owner, key) end
end

-- Declared dead, or released. A replica whose lease has ended is not dead until another one declares it.
local function is_dead(owner) return tonumber(redis.call('ZSCORE', g .. ':rep', owner) or 0) == 0 end

-- Change a task that still has this version. An end takes the task from its owner, and always has room if it is short.
local function set_task(ends)
  local key, principal, value, version, life = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
  local got = redis.call('HMGET', g .. ':t:' .. key, 'p', 'v', 'd', 'x', 'o')
  if got[1] ~= principal or tonumber(got[4]) <= now then return {'none'} end
  if tonumber(got[2]) == version + 1 and got[3] == value then return {'ok'} end
  if tonumber(got[2]) ~= version then return {'none'} end
  local growth = #value - #got[3]
  local fits = #value <= tonumber(ARGV[10]) and has_room(principal, math.max(growth, 0), ARGV[11], ARGV[12])
  if not fits and not (ends and #value <= tonumber(ARGV[13])) then return {'full'} end
  count_bytes(principal, growth)
  local last = math.max(tonumber(got[4]), now + life)
  redis.call('ZADD', g .. ':tasks', last, key)
  redis.call('HSET', g .. ':t:' .. key, 'v', version + 1, 'd', value, 'x', last)
  if ends then
    redis.call('HDEL', g .. ':t:' .. key, 'o')
    disown_task(key, got[5])
  elseif got[5] then
    live(g .. ':to', last - now + 2 * SLACK)
    live(g .. ':to:' .. got[5], last - now + 2 * SLACK)
  end
  keep_task(key, last - now)
  publish('bell', 'task', key, '')
  return {'ok'}
end

local function sweep_tasks()
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', g .. ':tasks', '-inf', now, 'LIMIT', 0, 1000)) do
    local got = redis.call('HMGET', g .. ':t:' .. key, 'p', 'd', 'o')
    redis.call('ZREM', g .. ':tasks', key)
    redis.call('DEL', g .. ':t:' .. key)
    disown_task(key, got[3])
    if got[1] then
      count_bytes(got[1], 0 - #got[2])
      if redis.call('HINCRBY', g .. ':tp', got[1], -1) <= 0 then redis.call('HDEL', g .. ':tp', got[1], 'b' .. got[1]) end
    end
  end
  if redis.call('EXISTS', g .. ':tasks') == 0 then redis.call('DEL', g .. ':tp') end
end
