-- Asks: requests to the client that wait for their answers. All of it is in the session's main hash.
--
--   a:<ask>     o  the replica that asks   d, p  digest and text of the answer, once there is one
--   q:<stream>  the names of the asks of an exchange that lives, so that its end forgets them; at most 256
--   S.out       asks without an answer: bounded by Limits.asks
--
-- The first answer counts. An equal one again is 'again', another one 'conflict', also after the ask was forgotten ('d' has its
-- digest for five minutes). Sent again: an ask that is there is registered; an answer that is there is 'again', which the
-- client gets the reply that the first one got; withdrawing what is not there changes nothing.
-- The asker is woken up, takes the answer and withdraws the ask. A wake-up that is lost is noticed by `check`.

--## ask: session
local name, stream, limit = ARGV[5], ARGV[6], tonumber(ARGV[7])
local got = load('a:' .. name, 'q:' .. stream)
if not S then return {'gone'} end
if got[2] then return {'ok', {}} end
if S.out >= limit then return {'full'} end
S.out = S.out + 1
if stream == S.sa or channel(stream) then
  local names = got[3] and cmsgpack.unpack(got[3]) or {}
  names[#names + 1] = name
  if #names > 256 then
    for index, old in ipairs(names) do
      local packed = redis.call('HGET', base, 'a:' .. old)
      if old ~= name and (not packed or cmsgpack.unpack(packed).p) then
        table.remove(names, index)
        redis.call('HDEL', base, 'a:' .. old)
        break
      end
    end
  end
  redis.call('HSET', base, 'q:' .. stream, cmsgpack.pack(names))
end
C = {}
save('a:' .. name, cmsgpack.pack({o = me}))
return {'ok', {}}

--## answer: session
local principal, name, digest, payload = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local got = load('a:' .. name)
if not S or S.pr ~= principal then return {'none'} end
if not got[2] then
  local packed = redis.call('HGET', base, 'd')
  for _, known in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    if known[1] == name and known[3] > now then return {known[2] == digest and 'again' or 'conflict'} end
  end
  return {'unknown'}
end
local ask = cmsgpack.unpack(got[2])
if ask.p then return {ask.d == digest and 'again' or 'conflict'} end
ask.d, ask.p = digest, payload
S.out = S.out - 1
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
