-- Streams: the log of an exchange, its reader, and the bounds of logs. For scripts that write, read or forget them.
--
-- A log is a Redis stream :e:<stream>. The event with number n has the id n-0 and two fields, in this order: t its tag, d its
-- data. A position is (number, tag); the tag is random, so a position of another log, or of a log that a failover has
-- set back, does not match. Of a log, C[stream] keeps
--   first        the number before the first event that ever was
--   low, ltag    the position before the oldest event that is retained
--   top, tag     the position of the newest event; low = top in an empty log
--   dl, dtag     how far a reader is known to have read
--   n, by        events and bytes that are retained; S.by is the sum over the session
--   closed       the newest event is the terminal message   fin  when the stream ended, if it is in :f
-- Without top the exchange has no log: a plain JSON answer never makes one.
--
-- Who may write: the writer must have the exchange's fence (`writable`). A fence is given once, by claim,
-- and reap changes it; so a replica that was declared dead and wakes up has an old fence, and writes
-- nothing.
--
-- Sent again: an event is recognized by its tag. It is the newest one, or, in a command that says it is sent again, one of
-- the last thousand (`is_written`). An end is recognized by the tag of the terminal message.
--
-- The order of deletion when there is too much (law 9): events of the same log beyond its own bounds, the oldest
-- first; then
-- whole finished streams of the session, those that were delivered before those that were not; then old events of the
-- session's largest log. The newest event always stays, so a terminal message is never lost to a bound. The bound of the whole
-- store is in the shared slot; a session reports its bytes there when they have changed enough (`account`).
--
-- The reader: rd is its replica, gen counts the readers. A new reader supersedes the one before, which gets a wake-up. A
-- detach counts only if it names the present gen. aop and past are the commands that made the last readers; by them an
-- attach that is sent again is recognized, and does not supersede a reader that came after it.

-- If the exchange has no log, begin one; its first event has the number `seq` + 1.
local function begin(c, seq, tag)
  if not c.top then
    c.first, c.low, c.ltag, c.top, c.tag = seq, seq, tag, seq, tag
    c.dl, c.dtag = seq, tag
    c.by, c.n = 0, 0
  end
end

-- Forget an exchange with everything of it. `holder`: the stream that has its id, if the caller has read it.
local function forget(stream, c, holder)
  if c.fin then redis.call('LREM', base .. ':f', 1, stream) end
  if has_id(stream, c, holder) then
    redis.call('HDEL', base, 'c:' .. stream, 'i:' .. c.id)
  else
    redis.call('HDEL', base, 'c:' .. stream)
  end
  if c.rd then S.rd = S.rd - 1 end
  if c.top then
    S.by = S.by - c.by
    redis.call('DEL', base .. ':e:' .. stream)
  end
  C[stream] = nil
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

-- Cut the session's largest log. Its reader has received these events or does not read; readers of other logs lose nothing.
local function trim_largest(max_events, over)
  for _, field in ipairs(redis.call('HKEYS', base)) do
    local stream = string.match(field, '^c:(.*)$')
    if stream then exchange_of(stream) end
  end
  local largest, by = nil, -1
  for stream, c in pairs(C) do
    if c and c.top and c.by > by then largest, by = stream, c.by end
  end
  local freed = trim(largest, C[largest], max_events, by - math.max(over, math.floor(by / 8)))
  S.by = S.by - freed
  return freed > 0
end

-- Forget one finished stream: a delivered one, else the oldest that has no reader.
local function drop_finished()
  local fallback
  for _, stream in ipairs(redis.call('LRANGE', base .. ':f', 0, -1)) do
    local c = exchange_of(stream)
    if c and not c.rd and c.top then
      if c.dl == c.top and c.dtag == c.tag then
        forget(stream, c)
        return true
      end
      fallback = fallback or stream
    end
  end
  if fallback then forget(fallback, exchange_of(fallback)) end
  return fallback ~= nil
end

-- The stream has ended: put it behind the other finished ones, and forget those above the limit.
local function finish(stream, c, max_finished)
  redis.call('RPUSH', base .. ':f', stream)
  redis.call('PEXPIRE', base .. ':f', ttl())
  c.fin = now
  while redis.call('LLEN', base .. ':f') > max_finished and drop_finished() do end
end

-- When the oldest finished stream ended; 0 if no stream has finished.
local function oldest_finished()
  local stream = redis.call('LINDEX', base .. ':f', 0)
  local c = stream and exchange_of(stream)
  return c and c.fin or 0
end

-- Have the session's log bytes reported to the shared slot, if they have changed by `step` since the last report.
local function account(step)
  if math.abs(S.by - S.reported) >= step then
    S.reported = S.by
    todo[#todo + 1] = 'size'
    todo[#todo + 1] = S.by
    todo[#todo + 1] = oldest_finished()
  end
end

-- The number of this very event, if it is in the log already.
local function is_written(stream, c, tag)
  if c.n > 0 and c.tag == tag then return c.top end
  if again then
    for _, event in ipairs(redis.call('XREVRANGE', base .. ':e:' .. stream, '+', '-', 'COUNT', 1000)) do
      if event[2][2] == tag then return tonumber(string.match(event[1], '^%d+')) end
    end
  end
end

-- Add events, keep to the bounds, wake up the reader. `events` has from `first` on the tag and the data of each.
local function append(stream, c, events, first, max_events, max_bytes, max_session)
  local key = base .. ':e:' .. stream
  for index = first, #events, 2 do
    local tag, data = events[index], events[index + 1]
    c.top, c.tag = c.top + 1, tag
    c.n, c.by, S.by = c.n + 1, c.by + #data, S.by + #data
    redis.call('XADD', key, c.top .. '-0', 't', tag, 'd', data)
  end
  redis.call('PEXPIRE', key, ttl())
  S.by = S.by - trim(stream, c, max_events, max_bytes)
  while S.by > max_session and drop_finished() do end
  while S.by > max_session and trim_largest(max_events, S.by - max_session) do end
  publish(c.rd, 'stream', stream)
end

-- Whether a position can be one of this log. The tags of events that are no longer retained are not checked.
local function proves(stream, c, seq, tag)
  if seq == c.low then return tag == c.ltag end
  if seq < c.low then return seq >= c.first end
  if seq > c.top then return false end
  local found = redis.call('XRANGE', base .. ':e:' .. stream, seq .. '-0', seq .. '-0')
  return #found == 1 and found[1][2][2] == tag
end

-- The session's standalone stream: messages that belong to no request. It begins when it is first needed.
local function standalone(stream)
  local c = exchange_of(stream)
  if not c then
    c = {fence = -1, gen = 0}
    C[stream] = c
    begin(c, 0, '0')
  end
  return c
end

local ATTACHES = 8

-- The generation that this attach has given out before, if it is one of the last few.
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

-- The exchange, if this fence may write to it; else nil and why not. 'lost': the store has forgotten the claim in a failover.
local function writable(stream, fence)
  local c = exchange_of(stream)
  if not c then return nil, S.fence < fence and 'lost' or 'fenced' end
  if c.fence ~= fence then return nil, 'fenced' end
  if not c.run then return nil, 'closed' end
  return c
end

-- An exchange is no longer in flight.
local function stop(stream, c)
  c.run = nil
  S.run = S.run - 1
  if not c.ctl then S.calls = S.calls - 1 end
  S.ts, S.tt = now, now
  if c.q then
    --+ forget_asks
    forget_asks(stream, c)
  end
end

-- After its end: when to examine the session next, and its log bytes.
local function stopped(step)
  if S.hint > S.ts + S.il or S.away == 1 then
    --+ schedule
    schedule()
  end
  if S.by ~= S.reported then
    --+ account
    account(step)
  end
end

-- End an exchange with its terminal message.
local function settle(stream, c, terminal, tag, before, keep, limits)
  stop(stream, c)
  c.kept = keep and now or nil
  if not keep then release(stream, c) end
  begin(c, 1, before)
  c.closed = 1
  append(stream, c, {tag, terminal}, 1, limits[1], limits[2], limits[3])
  finish(stream, c, limits[4])
  stopped(limits[5])
end

-- End an exchange of which nothing ran.
local function unclaim(stream, c)
  stop(stream, c)
  forget(stream, c)
  stopped(math.huge)
end
