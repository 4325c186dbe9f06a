-- Exchanges: claimed, ended, kept for a repeat, cancelled, and taken from a replica that is dead.
--
-- One script is one decision, in the session's slot: claim checks session, principal, id and room and registers the exchange
-- (law 2); settle writes the terminal message, frees the id and the place, and forgets the asks (law 3). So an id is in
-- flight at most once, and an exchange ends at most once, even if several replicas try.
--
-- Sent again: a claim finds its own stream, whose name is random, and replies with the same fence. A settle finds the tag of
-- its terminal message, or, for an end without a message, finds no exchange although its fence was given out. reap finds its
-- tag; keep and cancel set the same values again.
--
-- After a failover the store may have lost the last writes. settle says 'lost' if the claim is gone (no fence so high was
-- given out) and 'rollback' if the log does not end where the writer's last event was; the writer then restores its stream
-- (`rebase` in streams.lua) and ends it again.

--## claim: session log
-- ARGV[9]: the most calls in flight; '' for control traffic.
local principal, id, stream, digest, most = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local got = load('pr', 'o:' .. me, 'c:' .. stream, 'i:' .. id, 'rec')
if not S or got[2] ~= principal then return {'none'} end
if S.later ~= '' then
  --+ withdrawn withdraw unpack_exchange unclaim
  local known = redis.call('HGET', base, 'w')
  local _, index = withdrawn(known, stream)
  local c = index and got[4] and unpack_exchange(got[4])
  if index and (not c or (c.run and c.own == me)) then
    if c then unclaim(stream, c) end
    withdraw(known, stream, true)
    save()
    return {'withdrawn', todo}
  end
end
if not got[3] then
  --+ must_register
  if must_register() then return {'register'} end
end
if got[4] then
  --+ unpack_exchange has_returned duplicate
  local c = unpack_exchange(got[4])
  if c.run and c.own == me then return {'ok', {}, c.fence, has_returned(), got[6]} end
  return duplicate(stream, c, true)
end
local holder = got[5]
if holder and redis.call('HEXISTS', base, 'iso') == 0 then
  --+ exchange_of duplicate release
  local other = exchange_of(holder)
  local is_stale = not (other.run or other.rd) and now - (other.kept or now) > math.max(S.gr, KEPT)
  local is_same = other.dg == digest and not is_stale
  if other.run or is_same then return duplicate(holder, other, is_same) end
  release(holder, other)
end
if most ~= '' then
  if S.calls >= tonumber(most) then
    save()
    return {'busy'}
  end
  S.calls = S.calls + 1
end
returned()
S.fence, S.run, S.rd = S.fence + 1, S.run + 1, S.rd + 1
local packed = struct.pack(LAYOUT, CLAIMED, S.fence, now, most == '' and 1 or 0, #id, id, #me, me, #digest, digest)
save('i:' .. id, stream, 'c:' .. stream, packed)
return {'ok', todo, S.fence, is_back and 1 or 0, got[6]}

--## give_back: session log !allow-oom
-- The request does not start. With its fence, its claim ends: nothing of it ran. Without, another replica may have claimed it.
local stream, fence = ARGV[5], tonumber(ARGV[6])
local got = load_exchange(stream, 'w')
if not S then return {'none'} end
local c = exchange_of(stream)
if not c or (c.run and fence == 0) then
  withdraw(got[3], stream, fence > 0)
elseif c.run and c.fence == fence then
  unclaim(stream, c)
  withdraw(got[3], stream, true)
else
  return {'none'}
end
save()
return {'ok', todo}

--## end_plain: session log !allow-oom
-- End an exchange without a message: a plain answer was sent, or none. Nothing of it stays.
local stream, fence = ARGV[5], tonumber(ARGV[6])
local got = load_exchange(stream, 'i:' .. ARGV[7])
if not S then return {'gone'} end
-- A reaper leaves the stream. So where there is no exchange, this end has been done.
if not C[stream] and S.fence >= fence then return {'ok', {}} end
local c, why = writable(stream, fence)
if not c then return {why} end
stop(stream, c)
forget(stream, c, c.id == ARGV[7] and got[3] or nil)
stopped(tonumber(ARGV[8]))
save()
return {'ok', todo}

--## settle: session log !allow-oom
-- End an exchange with its terminal message.
local stream, fence, terminal, tag, before, keep = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9], ARGV[10] == '1'
load_exchange(stream)
if not S then return {'gone'} end
local c = exchange_of(stream)
if c and c.fence == fence and c.closed and c.tag == tag then return {'ok', {}} end
-- A reaper leaves the stream. So where there is no exchange, an end that is sent again has been done.
if not c and again and S.fence >= fence then return {'ok', {}} end
local mine, why = writable(stream, fence)
if not mine then return {why} end
if ARGV[16] ~= '' and (mine.top ~= tonumber(ARGV[16]) or mine.tag ~= ARGV[17]) then return {'rollback'} end
local limits = {tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])}
settle(stream, mine, terminal, tag, before, keep, limits)
save()
return {'ok', todo}

--## keep: session log
local stream, id, digest, control = ARGV[5], ARGV[6], ARGV[7], ARGV[8] == '1'
local got = load('i:' .. id)
if not S or got[2] then return {'none'} end
local c = exchange_of(stream)
local is_new = not c
if is_new and ARGV[17] ~= '1' then return {'none'} end
-- The client has received all of it, and may use the id for another request.
if c and (not c.top or (c.dl == c.top and c.dtag == c.tag)) then return {'none'} end
if is_new then
  c = {id = id, dg = digest, ctl = control and 1 or nil, fence = S.fence, own = me, gen = 0, t = now}
  C[stream] = c
  begin(c, 1, ARGV[11])
  c.closed = 1
  append(stream, c, {ARGV[10], ARGV[9]}, 1, tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14]))
  finish(stream, c, tonumber(ARGV[15]))
  account(tonumber(ARGV[16]))
end
if C[stream] then
  c.kept = now
  save('i:' .. id, stream)
else
  save()
end
return {is_new and 'new' or 'ok', todo}

--## cancel: session
local principal, id = ARGV[5], ARGV[6]
if load('pr')[2] ~= principal or not S then return {'none'} end
local matches = {}
local got = redis.call('HGETALL', base)
for index = 1, #got, 2 do
  local stream = string.match(got[index], '^c:(.*)$')
  local c = stream and unpack_exchange(got[index + 1])
  if c and c.run and c.id == id then matches[#matches + 1] = stream end
end
if #matches ~= 1 then return {'none'} end
local c = exchange_of(matches[1])
c.cancel = 1
save()
publish(c.own, 'cancel', matches[1])
return {'ok', {}, matches[1]}

--## reap: session log !allow-oom
-- End an exchange whose owner was declared dead. It gets a new fence: an owner that wakes up cannot write any more.
local stream, owner, terminal, tag, before = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
load()
local c = S and exchange_of(stream)
if not c then return {'none'} end
if again and c.closed and c.tag == tag then return {'ok', {}} end
if c.own ~= owner or not c.run then return {'none'} end
if c.rd == owner then
  c.rd = nil
  S.rd = S.rd - 1
end
S.fence = S.fence + 1
c.fence = S.fence
settle(stream, c, terminal, tag, before, true, {tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])})
if S.rd == 0 and S.away == 0 then
  S.away, S.ts = 1, now
  report_away()
  schedule()
end
save()
return {'ok', todo}

--## orphaned: session order !allow-oom
-- Forget the readers of a dead replica; returns the exchanges that it ran here, also those that are dated in the future
-- because the clock was set back. Or the caller's own exchanges of this age that it does not know.
local owner, min_age, known = ARGV[5], tonumber(ARGV[6]), {}
for index = 7, #ARGV do known[ARGV[index]] = true end
load()
if not S then return {'none'} end
local orphans, lost_reader = {}, false
if owner ~= me then
  local held = held_turns()
  for stream, turn in pairs(held) do
    if turn.o == owner then held[stream] = nil end
  end
  write_held(held)
end
local got = redis.call('HGETALL', base)
for index = 1, #got, 2 do
  local stream = string.match(got[index], '^c:(.*)$')
  local c = stream and unpack_exchange(got[index + 1])
  if c and owner ~= me and c.rd == owner then
    c.rd, lost_reader = nil, true
    C[stream] = c
    S.rd = S.rd - 1
  end
  if c and c.run and c.own == owner and (owner ~= me or now - c.t >= min_age and not known[stream]) then
    -- Our own, but unknown to us: it had ended, and a failover has brought it back.
    orphans[#orphans + 1] = {stream, c.id}
  end
end
if lost_reader and S.rd == 0 and S.away == 0 then
  S.away, S.ts, S.tt = 1, now, now
  schedule()
end
if #orphans == 0 and owner ~= me then redis.call('HDEL', base, 'o:' .. owner) end
if owner ~= me then save() end
-- The dead replica may have died between a change and the hint of it.
return {'ok', owner ~= me and {'hint', S.hint, 'away', S.away} or todo, orphans}
