-- The end of a session: one script makes it, for the replica that asks first.
--
-- Everything of the session is deleted in one step: its hash, its logs and its state. Three things stay for a while.
--   * Streams that have a reader stay for LINGER, so that the reader can read to the end; a stream in flight gets its
--     terminal message here. Only their exchanges are left in the main hash.
--   * :x has the closing itself until the listeners were called, and longer in case a replica dies before it calls them.
--   * The entries of the shared slot are deleted next (`forget`), by the closer, or by the next sweep that finds no
-- session.
-- A second closing finds no S and does nothing. The same command sent again finds its own name in :x, and replies as before.

local LINGER = 10000

local function json_id(id)
  local text = string.sub(id, 2)
  return string.sub(id, 1, 1) == 'i' and text or cjson.encode(text)
end

-- Let a stream stay for its reader. `ending` makes the terminal message of a stream in flight: the text before the
-- id, the text after it, and the tag. Returns the rest of the exchange and its bytes, or nil if the stream is
-- deleted.
local function lingers(stream, c, ending)
  if not c.rd or not c.top or not c.id or not (c.closed or (c.run and ending)) then return nil end
  if c.run then
    local message = ending[1] .. json_id(c.id) .. ending[2]
    c.top, c.tag, c.n, c.by = c.top + 1, ending[3], c.n + 1, c.by + #message
    redis.call('XADD', base .. ':e:' .. stream, c.top .. '-0', 't', c.tag, 'd', message)
    c.run, c.closed = nil, 1
  end
  c.x = now + LINGER
  publish(c.rd, 'stream', stream)
  redis.call('PEXPIRE', base .. ':e:' .. stream, LINGER)
  return cmsgpack.pack(c), c.by
end

local function closing(why, ending)
  local got = redis.call('HGETALL', base)
  local doomed, record, subscriptions = {base, base .. ':f', base .. ':k', base .. ':o', base .. ':q'}, nil, {}
  local left, held, owners = {}, 0, {}
  for index = 1, #got, 2 do
    local kind, name = string.match(got[index], '^([cuo]):(.*)$')
    if kind == 'c' then
      local rest, size = lingers(name, unpack_exchange(got[index + 1]), ending)
      if rest then
        left[got[index]], held = rest, held + size
      else
        doomed[#doomed + 1] = base .. ':e:' .. name
      end
    elseif kind == 'u' then
      subscriptions[#subscriptions + 1] = name
    elseif kind == 'o' then
      owners[#owners + 1] = name
      publish(name, 'closed', '')
    elseif got[index] == 'rec' then
      record = got[index + 1]
    end
  end
  -- The home may have data of the session without any exchange or reader.
  local home = unpack_table(record)[4]
  if home ~= '' and home ~= replica_of(me) then publish(home .. '.0', 'closed', '') end
  local last = {why, record, op, owners, subscriptions, held}
  in_chunks(doomed, function(...) redis.call('UNLINK', ...) end)
  for field, rest in pairs(left) do redis.call('HSET', base, field, rest) end
  redis.call('PEXPIRE', base, LINGER)
  redis.call('SET', base .. ':x', cmsgpack.pack({last = last, at = now}), 'PX', 600000)
  return {'closed', {}, unpack(last)}
end

-- The reply of the closing that this command has made before.
local function closed_by_me()
  local packed = again and redis.call('GET', base .. ':x')
  local left = packed and cmsgpack.unpack(packed)
  if left and left.last[3] == op then return {'closed', {}, unpack(left.last)} end
end
