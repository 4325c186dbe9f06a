-- Streams: opened, written, read, and their readers (log.lua has the theory). One slot: the session's.
--
-- append is the store's half of law 4: when it replies, the events are in the log. read and attach change nothing of the log, so a
-- stream can be read from any replica at any time, also while it is written. Sent again: open_stream finds its log, append its
-- tag, attach its own name among the last readers, detach its name in `det`; free_bytes and remind do the same again,
-- which changes nothing more.

--## open_stream: session log
local stream, fence = ARGV[5], tonumber(ARGV[6])
load_exchange(stream)
if not S then return {'gone'} end
local c, why = writable(stream, fence)
if not c then return {why} end
if not c.top then
  begin(c, 1, ARGV[7])
  save()
end
return {'ok', {}, c.low, c.ltag}

--## append: session log
-- From ARGV[13] on: the tag and the data of each event.
local stream, fence = ARGV[5], tonumber(ARGV[6])
local got = load('sa')
if not S then return {'gone'} end
local c, why
if fence == -1 then
  stream = got[2]
  c = standalone(stream)
else
  c, why = writable(stream, fence)
  if not c then return {why} end
  if not c.top then return {ARGV[11] == '' and 'closed' or 'rollback'} end
end
local seq = is_written(stream, c, ARGV[#ARGV - 1])
if seq then return {'ok', {}, seq, stream} end
if ARGV[11] ~= '' and (c.top ~= tonumber(ARGV[11]) or c.tag ~= ARGV[12]) then return {'rollback'} end
append(stream, c, ARGV, 13, tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]))
account(tonumber(ARGV[10]))
save()
return {'ok', todo, c.top, stream}

--## rebase: session log !allow-oom
-- A failover has lost the last writes, and their writer is alive: it restores its claim, if that is lost, and its
-- recent events with the same positions, so that readers continue as if nothing had happened. If the recent events
-- begin after the last event in the store, there is a gap, which readers receive. Replies whether anything was lost.
local stream, fence, id, digest, control = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9] == '1'
local first, before = tonumber(ARGV[10]), ARGV[11]
load()
if not S then return {'gone'} end
local key = base .. ':e:' .. stream
local c, why = writable(stream, fence)
local restored = c and 0 or 1
if not c then
  if why ~= 'lost' then return {why} end
  c = {id = id, dg = digest, ctl = control and 1 or nil, fence = fence, own = me, rd = me, run = 1, gen = 0, t = now}
  C[stream] = c
  S.fence, S.run, S.rd = fence, S.run + 1, S.rd + 1
  if not control then S.calls = S.calls + 1 end
  redis.call('HSET', base, 'o:' .. me, 1)
  redis.call('HSETNX', base, 'i:' .. id, stream)
end
if first < 0 then
  save()
  return {'ok', {}, restored}
end
local last, last_tag = first + (#ARGV - 11) / 2, #ARGV > 11 and ARGV[#ARGV - 1] or before
if c.top and last <= c.top and proves(stream, c, last, last_tag) then
  -- Nothing of it is lost, or it was restored and written since then.
  save()
  return {'ok', {}, restored}
end
local events, at = {}, first
for index = 12, #ARGV, 2 do
  at = at + 1
  if not c.top or at > c.low then events[#events + 1] = {at, ARGV[index], ARGV[index + 1]} end
end
if not c.top then
  begin(c, first, before)
  -- Where every stream of an exchange begins.
  c.first = 1
end
if first > c.top then
  S.by = S.by - c.by
  redis.call('DEL', key)
  c.low, c.ltag, c.by, c.n = first, before, 0, 0
end
local keep = math.max(first, c.low)
for _, event in ipairs(redis.call('XRANGE', key, (keep + 1) .. '-0', '+')) do
  redis.call('XDEL', key, event[1])
  c.n, c.by, S.by = c.n - 1, c.by - #event[2][4], S.by - #event[2][4]
end
if redis.call('EXISTS', key) == 1 then redis.call('XSETID', key, keep .. '-0') end
c.top, c.tag = keep, keep == first and before or c.ltag
for _, event in ipairs(events) do
  c.top, c.tag, c.n = event[1], event[2], c.n + 1
  c.by, S.by = c.by + #event[3], S.by + #event[3]
  redis.call('XADD', key, event[1] .. '-0', 't', event[2], 'd', event[3])
end
redis.call('PEXPIRE', key, ttl())
publish(c.rd, 'stream', stream)
save()
return {'ok', todo, 1}

--## read: session log !no-writes
local stream, seq, tag, max_events, max_bytes = ARGV[5], tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local packed = redis.call('HGET', base, 'c:' .. stream)
local c = packed and unpack_exchange(packed)
if not c or not c.top or (c.x and c.x <= now) then return {'none'} end
if not proves(stream, c, seq, tag) then return {'fork'} end
local verdict, start, missed = 'ok', seq, 0
if seq < c.low then verdict, start, missed = 'gap', c.low, c.low end
local events, size, reply = {}, 0, {}
if start < c.top then
  events = redis.call('XRANGE', base .. ':e:' .. stream, (start + 1) .. '-0', '+', 'COUNT', max_events)
end
local last = start
for index, event in ipairs(events) do
  size = size + #event[2][4]
  if index > 1 and size > max_bytes then break end
  last = start + index
  reply[#reply + 1] = event[2][2]
  reply[#reply + 1] = event[2][4]
end
return {verdict, {}, start, missed, (c.closed and last == c.top) and 1 or 0, reply}

--## attach: session log
local principal, stream, seq, tag = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local got = load('pr', 'rec', 'o:' .. me, 'sa')
if not S or got[2] ~= principal then return {'none'} end
if not got[4] and must_register() then return {'register'} end
local since, alone = tonumber(ARGV[9]), stream == '' or stream == got[5]
if alone then stream = got[5] end
local c = alone and standalone(stream) or exchange_of(stream)
if c and c.run and not c.top then return {'unbegun'} end
if not c and is_given_back(stream) then return {'withdrawn'} end
if not c or not c.top or (seq ~= '' and not proves(stream, c, tonumber(seq), tag)) then return {'unresumable'} end
local generation = again and attached_by(c, op)
if not generation and since and c.rd then
  if c.gen ~= since then return {'busy'} end
  generation = since
end
if not generation then
  returned()
  if c.rd then publish(c.rd, 'taken', stream) else S.rd = S.rd + 1 end
  take_place(c, op)
  generation = c.gen
  local given_back, index = withdrawn(redis.call('HGET', base, 'w'), stream)
  if index then
    -- A connection waits for it again.
    table.remove(given_back, index)
    redis.call('HSET', base, 'w', cmsgpack.pack(given_back))
  end
  if c.top then redis.call('PEXPIRE', base .. ':e:' .. stream, ttl()) end
end
local at, at_tag = seq, tag
if seq == '' then
  if alone then at, at_tag = c.dl, c.dtag else at, at_tag = c.first, c.ltag end
end
if since and c.dl > tonumber(at) then at, at_tag = c.dl, c.dtag end
save()
local finished = c.closed and tonumber(at) == c.top
return {'ok', todo, generation, tonumber(at), at_tag, has_returned(), finished and 1 or 0, got[3]}

--## detach: session log !allow-oom
local stream, generation, seq, tag, broke = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9] == '1'
load_exchange(stream)
local c = S and exchange_of(stream)
if not c then return {'none'} end
if again and redis.call('HGET', base, 'det') == op then return {'ok', {}, 1} end
if c.gen ~= generation or not c.rd then return {'none'} end
c.rd = nil
S.rd, S.tt = S.rd - 1, now
if seq ~= '' and c.top then
  if tonumber(seq) >= c.dl then c.dl, c.dtag = tonumber(seq), tag end
  if c.kept and c.dl == c.top and c.dtag == c.tag then release(stream, c) end
end
local detached = 0
if broke and S.rd == 0 then
  S.ts = now
  if S.away == 0 then
    S.away, detached = 1, 1
    report_away()
    redis.call('HSET', base, 'det', op)
  end
end
schedule()
save()
return {'ok', todo, detached}

--## probe: session
-- Reply which replica reads a stream, and wake it up: it says with `vouch` whether its reader is alive.
local stream = ARGV[5]
load_exchange(stream)
local c = S and exchange_of(stream)
if not c then return {S and is_given_back(stream) and 'withdrawn' or 'none'} end
local reader = c.rd and replica_of(c.rd) or ''
if reader ~= '' and reader ~= replica_of(me) then publish(c.rd, 'probe', stream) end
local _, left = withdrawn(redis.call('HGET', base, 'w'), stream)
return {'ok', {}, c.run and 1 or 0, c.kept and 1 or 0, reader, c.word or 0, left and 1 or 0}

--## vouch: session !allow-oom
local stream, alive = ARGV[5], tonumber(ARGV[6])
load_exchange(stream)
local c = S and exchange_of(stream)
if not c then return {'none'} end
c.word = math.floor((c.word or 0) / 2) * 2 + 2 + alive
save()
return {'ok', {}}

--## free_bytes: session log !allow-oom
-- The whole store has too many bytes: free so many of this session. 'own' forgets finished streams, delivered ones first;
-- 'oldest' forgets the stream that ended first; 'trim' cuts the largest logs.
local wanted, how = tonumber(ARGV[5]), ARGV[6]
load()
if not S then return {'none'} end
local left = S.by - wanted
local function drop_oldest()
  for _, stream in ipairs(redis.call('LRANGE', base .. ':f', 0, -1)) do
    local c = exchange_of(stream)
    if c and not c.rd then
      forget(stream, c)
      return true
    end
  end
end
while S.by > left do
  local freed
  if how == 'own' then
    freed = drop_finished()
  elseif how == 'oldest' then
    freed = drop_oldest()
  else
    freed = trim_largest(tonumber(ARGV[7]), S.by - left)
  end
  if not freed or how == 'oldest' then break end
end
S.reported = S.by
local oldest = oldest_finished()
save()
return {'ok', {}, S.by, oldest}

--## remind: session log !allow-oom
-- Reply everything that other slots should know of this session: an earlier reply with it was lost.
load()
if not S then return {'none', {}} end
S.reported = S.by
save()
return {'ok', {'hint', S.hint, 'away', S.away, 'size', S.by, oldest_finished(), 'kept', keeps().al or 0, K.av or 0}}

--## check: session !no-writes
-- The changes of these streams and asks, because a wake-up may be lost: 'stream' name top, 'cancel', 'taken' or
-- 'answer' name. 'lost': one of the first streams, which run at the caller, or an ask is not here. It has ended, or a
-- failover has lost it.
load()
if not S then return {'none'} end
local changes, running, streams = {}, tonumber(ARGV[5]), tonumber(ARGV[6])
for index = 7, #ARGV do
  local name = ARGV[index]
  if index < 7 + streams then
    local c = exchange_of(name)
    if index < 7 + running and not (c and c.run) then changes[#changes + 1] = {'lost', name, 0} end
    if c and c.cancel and c.run then changes[#changes + 1] = {'cancel', name, 0} end
    if c and c.rd and replica_of(c.rd) ~= replica_of(me) then changes[#changes + 1] = {'taken', name, 0} end
    if c and c.top then changes[#changes + 1] = {'stream', name, c.top} end
  else
    local packed = redis.call('HGET', base, 'a:' .. name)
    if not packed then changes[#changes + 1] = {'lost', name, 0} end
    if packed and cmsgpack.unpack(packed).p then changes[#changes + 1] = {'answer', name, 0} end
  end
end
return {'ok', {}, changes}
