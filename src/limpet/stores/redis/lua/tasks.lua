-- Tasks, in the shared slot: their limits are of the whole store, and they are few.
--
--   :t:<task>    a hash: p principal, v version, d data, x when it is forgotten, o owner while it runs
--   :tasks       tasks by when they are forgotten
--   :tp          numbers of tasks by principal; their bytes ('b' before the principal), and the bytes of all ('')
--   :to          owners that have tasks   :to:<owner>  the tasks of one
--
-- The rules are in core/rules/tasks.py. The tasks of a dead incarnation are found through :to.

local function count_bytes(principal, size)
  redis.call('HINCRBY', g .. ':tp', '', size)
  redis.call('HINCRBY', g .. ':tp', 'b' .. principal, size)
end

local function disown_task(key, owner)
  if owner then redis.call('SREM', g .. ':to:' .. owner, key) end
end

-- Declared dead, or released. A replica whose lease has ended is not dead until another one declares it.
local function is_dead(owner) return tonumber(redis.call('ZSCORE', g .. ':rep', owner) or 0) == 0 end

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
