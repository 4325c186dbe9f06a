-- State: fields with versions, of a session or of a scope.
--
-- A scope is state that belongs to no session: that of a handle, or of a principal. Its keys begin as a session's do,
-- and it has its own slot. The key :s has its K (kept.lua), packed, with three more fields: pr the principal, life
-- how long it exists without use, due when it expires. A session's fields are in the session's slot and are deleted
-- with it.
--
--   :k  field -> version and value, packed. The version is a counter of the owner (kv), so a field that was deleted and set again
--       has another one, and a compare-and-set cannot mistake it.
--   :o  name of an operation -> its result   :q  the names, the oldest first: the last 256 are remembered
--
-- Sent again: an operation that has its name in :o replies with the first result and changes nothing. The name is the
-- caller's, so this also holds if the caller repeats the operation in another command. One script does one operation on one
-- field; nothing reads the whole state and writes it back (law 11).
local is_scope = false

-- Read K of the session or of the scope that has this key; nil if there is neither.
local function load_owner()
  local packed = load('k')[2]
  if not S then
    packed = redis.call('GET', base .. ':s')
    is_scope = true
  end
  K = packed and unpack_table(packed)
  if K and is_scope and K.due <= now then K = nil end
  return K
end

local function save_owner()
  if not is_scope then return save() end
  local left = math.max(1, K.due - now)
  redis.call('SET', base .. ':s', cmsgpack.pack(K), 'PX', left)
  for _, suffix in ipairs({':k', ':o', ':q'}) do redis.call('PEXPIRE', base .. suffix, left) end
end

local function remembered(name) return redis.call('HGET', base .. ':o', name) end

-- Save everything, with the result of this operation; returns the reply.
local function remember(name, result)
  redis.call('HSET', base .. ':o', name, result)
  redis.call('RPUSH', base .. ':q', name)
  if redis.call('LLEN', base .. ':q') > 256 then
    redis.call('HDEL', base .. ':o', redis.call('LPOP', base .. ':q'))
  end
  if not is_scope then
    for _, suffix in ipairs({':k', ':o', ':q'}) do redis.call('PEXPIRE', base .. suffix, ttl()) end
  end
  save_owner()
  return {'ok', todo, tostring(result)}
end

local function read_cell(name)
  local packed = redis.call('HGET', base .. ':k', name)
  return packed and cmsgpack.unpack(packed)
end

-- Set or (false) delete a field. Returns nil, or the reply of a script that could not: the state would be over its limit,
-- or it needs a larger allowance. Then nothing has changed.
local function write_cell(name, cell, value, limit)
  local before = cell and #name + #cell[2] or 0
  local after = value and #name + #value or 0
  local more, entries = after - before, (value and 1 or 0) - (cell and 1 or 0)
  if more > 0 and K.kb + more > limit then return {'full'} end
  if lacks(more + ENTRY * entries) then return ask_room(more + ENTRY * entries) end
  K.kb, K.kn, K.kv = K.kb + more, math.max(0, (K.kn or 0) + entries), K.kv + 1
  if value then
    redis.call('HSET', base .. ':k', name, cmsgpack.pack({K.kv, value}))
  else
    redis.call('HDEL', base .. ':k', name)
  end
  if more < 0 then give_back() end
end
