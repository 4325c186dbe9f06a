-- The one closing transition, for scripts that may make it.

local LINGER = 10000

local function json_id(id)
  local text = string.sub(id, 2)
  return string.sub(id, 1, 1) == 'i' and text or cjson.encode(text)
end

-- A stream that has a reader stays for it to read to the end, which one in flight has now. `ending`: what comes before
-- the id in its terminal message, what comes after it, and its tag. Returns what is left of it and its bytes, or nil.
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
  local doomed, record, subscriptions = {base, base .. ':f', base .. ':k', base .. ':o', base .. ':q'}, {}, {}
  local left, held = {}, 0
  for index = 1, #got, 2 do
    local kind, name = string.match(got[index], '^([cu]):(.*)$')
    if kind == 'c' then
      local rest, size = lingers(name, cmsgpack.unpack(got[index + 1]), ending)
      if rest then
        left[got[index]], held = rest, held + size
      else
        doomed[#doomed + 1] = base .. ':e:' .. name
      end
    elseif kind == 'u' then
      subscriptions[#subscriptions + 1] = name
    else
      record[got[index]] = got[index + 1]
    end
  end
  local owners = {}
  for owner in pairs(S.ow) do
    owners[#owners + 1] = owner
    publish(owner, 'closed', '')
  end
  local last = {why, record.rec, record.lv or '', record['in'] or '', op, owners, subscriptions, held}
  in_chunks(doomed, function(...) redis.call('UNLINK', ...) end)
  for field, rest in pairs(left) do redis.call('HSET', base, field, rest) end
  redis.call('PEXPIRE', base, LINGER)
  redis.call('SET', base .. ':x', cmsgpack.pack({last = last, at = now}), 'PX', 600000)
  return {'closed', {}, unpack(last)}
end

-- The closing that this very command made, when it is sent again.
local function closed_by_me()
  local packed = again and redis.call('GET', base .. ':x')
  local left = packed and cmsgpack.unpack(packed)
  if left and left.last[5] == op then return {'closed', {}, unpack(left.last)} end
end
