-- Tasks live beside the indexes: their limits are of the whole store, and they are few.

local function task_bytes() return tonumber(redis.call('HGET', g .. ':tp', '') or 0) end

local function keep_task(key, life)
  redis.call('PEXPIRE', g .. ':t:' .. key, life + SLACK)
  live(g .. ':tasks', life + 2 * SLACK)
  live(g .. ':tp', life + 2 * SLACK)
end

local function sweep_tasks()
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', g .. ':tasks', '-inf', now, 'LIMIT', 0, 1000)) do
    local got = redis.call('HMGET', g .. ':t:' .. key, 'p', 'd')
    redis.call('ZREM', g .. ':tasks', key)
    redis.call('DEL', g .. ':t:' .. key)
    if got[1] then
      redis.call('HINCRBY', g .. ':tp', '', -#got[2])
      if redis.call('HINCRBY', g .. ':tp', got[1], -1) <= 0 then redis.call('HDEL', g .. ':tp', got[1]) end
    end
  end
  if redis.call('EXISTS', g .. ':tasks') == 0 then redis.call('DEL', g .. ':tp') end
end
