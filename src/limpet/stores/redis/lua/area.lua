-- The beginning of the scripts for state. ARGV[1] is the time in milliseconds, or empty.
--
--   :k  a hash: h the head (stores/shared/state.py), f:<field> a field's version and value, o:<change> the result of a change, and of an area
--       also a: until when it exists, for how long, its principal
--   :q  the names of the changes, the oldest first
local base, state, now = KEYS[1], KEYS[1] .. ':k', tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function area()
  local due, life, principal = string.match(redis.call('HGET', state, 'a') or '', '^(%d+) (%d+) (.*)$')
  return tonumber(due), tonumber(life), principal
end

-- For how many milliseconds the session or area exists; nil if it does not.
local function left()
  if redis.call('HEXISTS', base, 'n') == 1 then return redis.call('PTTL', base) end
  local due = area()
  return due and due > now and due - now or nil
end

local function keep_state(milliseconds)
  redis.call('PEXPIRE', state, milliseconds)
  redis.call('PEXPIRE', base .. ':q', milliseconds)
end

local function touch(life, principal)
  redis.call('HSET', state, 'a', string.format('%d %d ', now + life, life) .. principal)
  keep_state(life)
  return {'ok', now + life}
end
