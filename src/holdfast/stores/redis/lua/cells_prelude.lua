-- State: fields with versions, of a session or of an area, and what their owner may keep (state.py has the theory).
--
-- K, of the owner: pr its principal; kb, kn, kv bytes, number and last version of its fields; ub bytes of its subscriptions; al, av, as
-- its allowance, how often that was lowered, and its step; of an area also life and due. A session's K is the field k of its hash, an area's the key :s.
--   :k  field -> version and value   :o  name of an operation -> its result   :q  the names, the oldest first
local base, K, is_area, todo = KEYS[1], nil, false, {}
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local ENTRY, SLACK = 256, 3600000

local function load_owner()
  local got = redis.call('HMGET', base, 'n', 'k')
  local packed = got[2]
  if not got[1] then
    packed, is_area = redis.call('GET', base .. ':s'), true
  end
  K = packed and cmsgpack.unpack(packed)
  if packed and type(K) ~= 'table' then error('unreadable record') end
  if K and is_area and K.due <= now then K = nil end
  return K
end

local function save_owner()
  local left
  if is_area then
    left = math.max(1, K.due - now)
    redis.call('SET', base .. ':s', cmsgpack.pack(K), 'PX', left)
  else
    redis.call('HSET', base, 'k', cmsgpack.pack(K))
    left = redis.call('PTTL', base)
  end
  for _, suffix in ipairs({':k', ':o', ':q'}) do redis.call('PEXPIRE', base .. suffix, left) end
end

local function kept() return K.kb + (K.ub or 0) + ENTRY * (K.kn or 0) end

-- The reply that asks for a larger allowance, if so many bytes more need one: the bytes, the count, the principal, for how long.
local function ask_room(more)
  if more <= 0 or kept() + more <= (K.al or 0) then return nil end
  return {'room', {}, kept() + more, K.av or 0, K.pr, K.life or redis.call('PTTL', base)}
end

-- After something was forgotten: give back the bytes that are not needed, if they are more than two steps of allowances.
local function give_back()
  if K.al and K.al - kept() > 2 * K.as then
    K.al, K.av = kept() + K.as, K.av + 1
    todo = {'kept', K.al, K.av}
  end
end

-- Save everything, with the result of this operation; returns the reply.
local function remember(name, result)
  redis.call('HSET', base .. ':o', name, result)
  redis.call('RPUSH', base .. ':q', name)
  if redis.call('LLEN', base .. ':q') > 256 then redis.call('HDEL', base .. ':o', redis.call('LPOP', base .. ':q')) end
  save_owner()
  return {'ok', todo, tostring(result)}
end

local function read_cell(name)
  local packed = redis.call('HGET', base .. ':k', name)
  return packed and cmsgpack.unpack(packed)
end

-- Set or (false) delete a field. Returns nil, or the reply of a script that could not; then nothing has changed.
local function write_cell(name, cell, value, limit)
  local before, after = cell and #name + #cell[2] or 0, value and #name + #value or 0
  local more, entries = after - before, (value and 1 or 0) - (cell and 1 or 0)
  if more > 0 and K.kb + more > limit then return {'full'} end
  local room = ask_room(more + ENTRY * entries)
  if room then return room end
  K.kb, K.kn, K.kv = K.kb + more, math.max(0, (K.kn or 0) + entries), K.kv + 1
  if value then
    redis.call('HSET', base .. ':k', name, cmsgpack.pack({K.kv, value}))
  else
    redis.call('HDEL', base .. ':k', name)
  end
  if more < 0 then give_back() end
end
