-- Streams and their budgets, for scripts that write or forget them.

local function begin(c, seq, tag)
  if not c.top then
    c.first, c.low, c.ltag, c.top, c.tag = seq, seq, tag, seq, tag
    c.dl, c.dtag = seq, tag
    c.by, c.n = 0, 0
  end
end

-- What was kept to run an exchange again is of no use any more.
local function unkeep(stream, c)
  if c.pb then
    redis.call('HDEL', base, 'p:' .. stream)
    S.pb, c.pb = S.pb - c.pb, nil
    give_back()
  end
end

local function forget(stream, c)
  if c.fin then redis.call('LREM', base .. ':f', 1, stream) end
  redis.call('HDEL', base, 'c:' .. stream)
  release(stream, c)
  unkeep(stream, c)
  if c.rd then S.rd = S.rd - 1 end
  if c.top then
    S.by = S.by - c.by
    redis.call('DEL', base .. ':e:' .. stream)
  end
  C[stream] = false
end

-- Drop the oldest events down to the bounds, never the newest; returns the bytes freed.
local function trim(stream, c, max_events, max_bytes)
  local key, freed = base .. ':e:' .. stream, 0
  while c.n > 1 and (c.n > max_events or c.by - freed > max_bytes) do
    local oldest = redis.call('XRANGE', key, (c.low + 1) .. '-0', '+', 'COUNT', 1)[1]
    c.low, c.ltag, c.n = c.low + 1, oldest[2][2], c.n - 1
    freed = freed + #oldest[2][4]
    redis.call('XDEL', key, oldest[1])
  end
  c.by = c.by - freed
  return freed
end

-- Cut the session's largest log: it holds what a reader had, or does not take; the others' readers lose nothing.
local function trim_largest(max_events, over)
  for _, field in ipairs(redis.call('HKEYS', base)) do
    local stream = string.match(field, '^c:(.*)$')
    if stream then channel(stream) end
  end
  local largest, by = nil, -1
  for stream, c in pairs(C) do
    if c and c.top and c.by > by then largest, by = stream, c.by end
  end
  local freed = trim(largest, C[largest], max_events, by - math.max(over, math.floor(by / 8)))
  S.by = S.by - freed
  return freed > 0
end

-- Forget the finished stream that matters least: a delivered one, else the oldest without a reader.
local function drop_finished()
  local fallback
  for _, stream in ipairs(redis.call('LRANGE', base .. ':f', 0, -1)) do
    local c = channel(stream)
    if c and not c.rd and c.top then
      if c.dl == c.top and c.dtag == c.tag then
        forget(stream, c)
        return true
      end
      fallback = fallback or stream
    end
  end
  if fallback then forget(fallback, channel(fallback)) end
  return fallback ~= nil
end

local function finish(stream, c, max_finished)
  redis.call('RPUSH', base .. ':f', stream)
  redis.call('PEXPIRE', base .. ':f', ttl())
  c.fin = now
  while redis.call('LLEN', base .. ':f') > max_finished and drop_finished() do end
end

-- When the oldest finished stream ended; 0 if there is none.
local function oldest_finished()
  local stream = redis.call('LINDEX', base .. ':f', 0)
  local c = stream and channel(stream)
  return c and c.fin or 0
end

-- Tell the store-wide budget, if the session's size has changed by enough to matter.
local function account(grain)
  if math.abs(S.by - S.told) >= grain then
    S.told = S.by
    todo[#todo + 1] = 'size'
    todo[#todo + 1] = S.by
    todo[#todo + 1] = oldest_finished()
  end
end

-- Whether this very event is in the log already: it is the newest, or this is a command sent again.
local function is_written(stream, c, tag)
  if c.n > 0 and c.tag == tag then return c.top end
  if again then
    for _, event in ipairs(redis.call('XREVRANGE', base .. ':e:' .. stream, '+', '-', 'COUNT', 1000)) do
      if event[2][2] == tag then return tonumber(string.match(event[1], '^%d+')) end
    end
  end
end

local function append(stream, c, tag, data, max_events, max_bytes, max_session)
  local key = base .. ':e:' .. stream
  c.top, c.tag = c.top + 1, tag
  c.n, c.by, S.by = c.n + 1, c.by + #data, S.by + #data
  redis.call('XADD', key, c.top .. '-0', 't', tag, 'd', data)
  redis.call('PEXPIRE', key, ttl())
  S.by = S.by - trim(stream, c, max_events, max_bytes)
  while S.by > max_session and drop_finished() do end
  while S.by > max_session and trim_largest(max_events, S.by - max_session) do end
  publish(c.rd, 'stream', stream)
end

-- Whether the cursor can have been a position of the log; tags below the retained ones are believed.
local function proves(stream, c, seq, tag)
  if seq == c.low then return tag == c.ltag end
  if seq < c.low then return seq >= c.first end
  if seq > c.top then return false end
  local found = redis.call('XRANGE', base .. ':e:' .. stream, seq .. '-0', seq .. '-0')
  return #found == 1 and found[1][2][2] == tag
end

local function standalone()
  local c = channel(S.sa)
  if not c then
    c = {fence = -1, gen = 0}
    C[S.sa] = c
    begin(c, 0, '0')
  end
  return c
end

local ATTACHES = 8

-- The generation that an attach gave out, if it is one of the last few: sent again it takes nobody's place.
local function attached_by(c, name)
  if c.aop == name then return c.gen end
  for _, attach in ipairs(c.past or {}) do
    if attach[1] == name then return attach[2] end
  end
end

local function take_place(c, name)
  local past = c.past or {}
  if c.aop then past[#past + 1] = {c.aop, c.gen} end
  if #past > ATTACHES then table.remove(past, 1) end
  c.rd, c.gen, c.aop, c.past = me, c.gen + 1, name, past
end

-- The exchange if this fence may write it, else nil and why not.
local function writable(stream, fence)
  local c = channel(stream)
  if not c then return nil, S.fence < fence and 'lost' or 'fenced' end
  if c.fence ~= fence then return nil, 'fenced' end
  if not c.run then return nil, 'closed' end
  return c
end

-- The end of an exchange, with its terminal message or without a stream.
local function settle(stream, c, terminal, tag, before, keep, limits)
  c.run = nil
  S.run = S.run - 1
  if not c.ctl then S.calls = S.calls - 1 end
  S.ts, S.tt = now, now
  forget_asks(stream)
  unkeep(stream, c)
  c.kept = (keep and terminal) and 1 or nil
  if not c.kept then release(stream, c) end
  if terminal then
    begin(c, 1, before)
    c.closed = 1
    append(stream, c, tag, terminal, limits[1], limits[2], limits[3])
    finish(stream, c, limits[4])
  else
    forget(stream, c)
  end
  if S.hint > S.ts + S.il or S.st == 'd' then schedule() end
  account(limits[5])
end
