-- Turns, for `in_order`: the calls of a session run one after another, in the order in which they were claimed, which is the
-- order of their fences. A call whose thread is still running after its end holds its turn until it is passed on.

-- The calls that hold their turn: by stream, f the fence and o the owner.
local function held_turns()
  local packed = redis.call('HGET', base, 'hd')
  return packed and cmsgpack.unpack(packed) or {}
end

local function write_held(held)
  if next(held) then redis.call('HSET', base, 'hd', cmsgpack.pack(held)) else redis.call('HDEL', base, 'hd') end
end

-- The call that may run, and its exchange: the call in flight with the smallest fence, unless an earlier call keeps
-- its turn.
local function first()
  local got, name, found = redis.call('HGETALL', base), nil, nil
  for index = 1, #got, 2 do
    local stream = string.match(got[index], '^c:(.*)$')
    local c = stream and unpack_exchange(got[index + 1])
    if c and c.run and not c.ctl and (not found or c.fence < found.fence) then name, found = stream, c end
  end
  for _, held in pairs(held_turns()) do
    if found and held.f < found.fence then return nil end
  end
  return name, found
end
