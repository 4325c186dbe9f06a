-- Asks: requests to the client that wait for their answers. All of it is in the session's main hash.
--
--   a:<ask>     o  the replica that asks   d, p  digest and text of the answer, once there is one
--   q:<stream>  the names of the asks of an exchange, so that its end forgets them. Names of withdrawn asks are
--               removed when there are more than ANSWERS names
--   out         the number of asks without an answer: bounded by Limits.asks
--
-- The first answer counts. The same answer once more is 'again', a different answer is 'conflict'. This also holds after the
-- ask was forgotten: 'd' keeps the digest of its answer for five minutes.
-- The replica that asked receives a wake-up, takes the answer and withdraws the ask. If the wake-up is lost, `check` finds the
-- answer. An answer is never dropped to make room: if ANSWERS answers of a stream were not withdrawn, `ask` replies 'full'.
--
-- Sent again: an ask that exists is registered; an answer that exists is 'again', and the client receives the same
-- reply as for the first one; withdrawing an ask that does not exist changes nothing.

--## ask: session
local name, stream, limit = ARGV[5], ARGV[6], tonumber(ARGV[7])
local got = load('a:' .. name, 'q:' .. stream, 'sa', 'out')
if not S then return {'gone'} end
if got[2] then return {'ok', {}} end
if tonumber(got[5] or 0) >= limit then return {'full'} end
local c = exchange_of(stream)
if c then c.q = 1 end
if c or stream == got[4] then
  local names = got[3] and cmsgpack.unpack(got[3]) or {}
  if #names >= ANSWERS then
    local live, answers = {}, 0
    for _, old in ipairs(names) do
      local packed = redis.call('HGET', base, 'a:' .. old)
      if packed then
        live[#live + 1] = old
        if cmsgpack.unpack(packed).p then answers = answers + 1 end
      end
    end
    if answers >= ANSWERS then return {'full'} end
    names = live
  end
  names[#names + 1] = name
  redis.call('HSET', base, 'q:' .. stream, cmsgpack.pack(names))
end
redis.call('HINCRBY', base, 'out', 1)
save('a:' .. name, cmsgpack.pack({o = me}))
return {'ok', {}}

--## answer: session
local principal, name, digest, payload = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local got = load('pr', 'a:' .. name)
if not S or got[2] ~= principal then return {'none'} end
if not got[3] then
  local packed = redis.call('HGET', base, 'd')
  for _, known in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    if known[1] == name and known[3] > now then return {known[2] == digest and 'again' or 'conflict'} end
  end
  return {'unknown'}
end
local ask = cmsgpack.unpack(got[3])
if ask.p then return {ask.d == digest and 'again' or 'conflict'} end
ask.d, ask.p = digest, payload
redis.call('HINCRBY', base, 'out', -1)
save('a:' .. name, cmsgpack.pack(ask))
publish(ask.o, 'answer', name)
return {'first', {}}

--## take: session !no-writes
local packed = redis.call('HGET', base, 'a:' .. ARGV[5])
local ask = packed and cmsgpack.unpack(packed)
if not ask or not ask.p then return {'none'} end
return {'ok', {}, ask.p}

--## withdraw: session !allow-oom
load()
if not S then return {'none'} end
drop_ask(ARGV[5])
save()
return {'ok', {}}
